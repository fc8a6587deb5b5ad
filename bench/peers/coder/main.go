package main

import (
	"context"
	"log"
	"net/http"

	"github.com/coder/websocket"
	"tws.test/gopeer"
)

func options() *websocket.AcceptOptions {
	if gopeer.Deflate() {
		return &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover}
	}
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, options())
	if err != nil {
		log.Print(err)
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(gopeer.MaxMessage)
	ctx := context.Background()
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if err := conn.Write(ctx, kind, message); err != nil {
			return
		}
	}
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/connect", echo)
	gopeer.Serve(mux)
}
