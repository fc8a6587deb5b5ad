module tws.test/peer-melody

go 1.26

require (
	github.com/olahol/melody v1.3.0
	tws.test/gopeer v0.0.0
)

require github.com/gorilla/websocket v1.5.3 // indirect

replace tws.test/gopeer => ../lib/gopeer
