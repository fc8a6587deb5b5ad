package main

import (
	"log"
	"net/http"

	"github.com/olahol/melody"
	"tws.test/gopeer"
)

func main() {
	m := melody.New()
	m.Config.MaxMessageSize = gopeer.MaxMessage
	m.Config.MessageBufferSize = gopeer.BroadcastQueue()
	m.HandleMessage(func(_ *melody.Session, message []byte) {
		_ = m.Broadcast(message)
	})
	m.HandleMessageBinary(func(_ *melody.Session, message []byte) {
		_ = m.BroadcastBinary(message)
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/broadcast", func(w http.ResponseWriter, r *http.Request) {
		if err := m.HandleRequest(w, r); err != nil {
			log.Print(err)
		}
	})
	gopeer.Serve(mux)
}
