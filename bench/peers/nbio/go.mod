module tws.test/peer-nbio

go 1.26

require (
	github.com/lesismal/llib v1.2.4
	github.com/lesismal/nbio v1.6.12
	tws.test/gopeer v0.0.0
)

require (
	golang.org/x/crypto v0.0.0-20210513122933-cd7d49e622d5 // indirect
	golang.org/x/sys v0.0.0-20210423082822-04245dca01da // indirect
)

replace tws.test/gopeer => ../lib/gopeer
