package main

import (
	"log"
	"net/http"

	"github.com/gorilla/websocket"
	"tws.test/gopeer"
)

var upgrader = websocket.Upgrader{EnableCompression: gopeer.Deflate()}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, message); err != nil {
			return
		}
	}
}

func main() {
	h := newHub()
	go h.run()
	mux := http.NewServeMux()
	mux.HandleFunc("/connect", echo)
	mux.HandleFunc("/broadcast", h.serve)
	gopeer.Serve(mux)
}
