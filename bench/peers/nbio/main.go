package main

import (
	"log"
	"net/http"
	"os"

	"github.com/lesismal/llib/std/crypto/tls"
	"github.com/lesismal/nbio/logging"
	"github.com/lesismal/nbio/nbhttp"
	"github.com/lesismal/nbio/nbhttp/websocket"
	"tws.test/gopeer"
)

func newUpgrader() *websocket.Upgrader {
	u := websocket.NewUpgrader()
	u.MessageLengthLimit = gopeer.MaxMessage
	u.EnableCompression(gopeer.Deflate())
	u.OnMessage(func(c *websocket.Conn, kind websocket.MessageType, data []byte) {
		_ = c.WriteMessage(kind, data)
	})
	return u
}

func config(handler http.Handler) nbhttp.Config {
	c := nbhttp.Config{
		Network:                 "tcp",
		Handler:                 handler,
		ReleaseWebsocketPayload: true,
	}
	cert, key, ok := gopeer.CertFiles()
	if !ok {
		c.Addrs = []string{gopeer.Addr()}
		return c
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		log.Fatal(err)
	}
	c.AddrsTLS = []string{gopeer.Addr()}
	c.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
	return c
}

func main() {
	logging.Output = os.Stderr
	upgrader := newUpgrader()
	mux := http.NewServeMux()
	mux.HandleFunc("/connect", func(w http.ResponseWriter, r *http.Request) {
		if _, err := upgrader.Upgrade(w, r, nil); err != nil {
			log.Print(err)
		}
	})
	engine := nbhttp.NewEngine(config(mux))
	if err := engine.Start(); err != nil {
		log.Fatal(err)
	}
	gopeer.Ready()
	select {}
}
