module tws.test/peer-coder

go 1.26

require (
	github.com/coder/websocket v1.8.15
	tws.test/gopeer v0.0.0
)

replace tws.test/gopeer => ../lib/gopeer
