package deflate

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"github.com/lxzan/gws"
)

// gwsHandler hands over what it is told.
type gwsHandler struct {
	gws.BuiltinEventHandler
	got    chan message
	closed chan error
}

func (h *gwsHandler) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	h.got <- message{m.Opcode == gws.OpcodeText, bytes.Clone(m.Bytes())}
}

func (h *gwsHandler) OnClose(_ *gws.Conn, err error) {
	h.closed <- err
}

func TestGws(t *testing.T) {
	settings := []gws.PermessageDeflate{
		{Enabled: true},
		{Enabled: true, ServerContextTakeover: true, ClientContextTakeover: true, Threshold: 1},
		{Enabled: true, ServerContextTakeover: true, ClientContextTakeover: true, ServerMaxWindowBits: 9,
			ClientMaxWindowBits: 9, Threshold: 1, Level: 9},
	}
	servers(t, func(t *testing.T, url string, r *rand.Rand) {
		for _, deflate := range settings {
			handler := &gwsHandler{got: make(chan message, 1), closed: make(chan error, 1)}
			conn, response, err := gws.NewClient(handler,
				&gws.ClientOption{Addr: url, PermessageDeflate: deflate, ReadMaxPayloadSize: limit})
			if err != nil {
				t.Fatal(err)
			}
			agreed(t, response)
			go conn.ReadLoop()
			for range messages {
				sent := someMessage(r)
				opcode := gws.OpcodeBinary
				if sent.text {
					opcode = gws.OpcodeText
				}
				if err := conn.WriteMessage(opcode, sent.data); err != nil {
					t.Fatal(err)
				}
				select {
				case got := <-handler.got:
					compare(t, sent, got)
				case err := <-handler.closed:
					t.Fatal(err)
				case <-time.After(patience):
					t.Fatal("no answer")
				}
			}
			conn.NetConn().Close()
		}
	})
}
