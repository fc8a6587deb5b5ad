package main

import (
	"log"
	"net"
	"net/http"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"tws.test/gopeer"
)

func echo(conn net.Conn) {
	defer conn.Close()
	for {
		message, op, err := wsutil.ReadClientData(conn)
		if err != nil {
			return
		}
		if err := wsutil.WriteServerMessage(conn, op, message); err != nil {
			return
		}
	}
}

func main() {
	wsutil.SetMaxMessageSize(gopeer.MaxMessage)
	mux := http.NewServeMux()
	mux.HandleFunc("/connect", func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			log.Print(err)
			return
		}
		go echo(conn)
	})
	gopeer.Serve(mux)
}
