module tws.test/deflate

go 1.26

require (
	github.com/coder/websocket v1.8.15
	github.com/gorilla/websocket v1.5.3
	github.com/lxzan/gws v1.9.1
)

require github.com/klauspost/compress v1.17.9 // indirect
