module tws.test/peer-gorilla

go 1.26

require (
	github.com/gorilla/websocket v1.5.3
	tws.test/gopeer v0.0.0
)

replace tws.test/gopeer => ../lib/gopeer
