package main

import (
	"log"
	"net/http"
	"sync"

	"github.com/lxzan/gws"
	"tws.test/gopeer"
)

type echo struct {
	gws.BuiltinEventHandler
}

func (echo) OnMessage(socket *gws.Conn, message *gws.Message) {
	defer message.Close()
	_ = socket.WriteMessage(message.Opcode, message.Bytes())
}

// room gives each message to every connection through one Broadcaster, which encodes it once.
type room struct {
	gws.BuiltinEventHandler
	mu    sync.RWMutex
	conns map[*gws.Conn]struct{}
}

func (r *room) OnOpen(socket *gws.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[socket] = struct{}{}
}

func (r *room) OnClose(socket *gws.Conn, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, socket)
}

func (r *room) OnMessage(_ *gws.Conn, message *gws.Message) {
	defer message.Close()
	b := gws.NewBroadcaster(message.Opcode, message.Bytes())
	defer b.Close()
	r.mu.RLock()
	defer r.mu.RUnlock()
	for socket := range r.conns {
		_ = b.Broadcast(socket)
	}
}

func serve(upgrader *gws.Upgrader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		socket, err := upgrader.Upgrade(w, r)
		if err != nil {
			log.Print(err)
			return
		}
		go socket.ReadLoop()
	}
}

func main() {
	option := func() *gws.ServerOption {
		return &gws.ServerOption{PermessageDeflate: gws.PermessageDeflate{Enabled: gopeer.Deflate()}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/connect", serve(gws.NewUpgrader(echo{}, option())))
	mux.HandleFunc("/broadcast", serve(gws.NewUpgrader(&room{conns: map[*gws.Conn]struct{}{}}, option())))
	gopeer.Serve(mux)
}
