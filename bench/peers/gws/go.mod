module tws.test/peer-gws

go 1.26

require (
	github.com/lxzan/gws v1.9.1
	tws.test/gopeer v0.0.0
)

require github.com/klauspost/compress v1.17.9 // indirect

replace tws.test/gopeer => ../lib/gopeer
