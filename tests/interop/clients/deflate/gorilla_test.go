package deflate

import (
	"math/rand"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// gorilla knows compression without context takeover only.
func TestGorilla(t *testing.T) {
	servers(t, func(t *testing.T, url string, r *rand.Rand) {
		for level := 1; level <= 9; level += 4 {
			dialer := websocket.Dialer{EnableCompression: true, HandshakeTimeout: patience}
			conn, response, err := dialer.Dial(url, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			agreed(t, response)
			if err := conn.SetCompressionLevel(level); err != nil {
				t.Fatal(err)
			}
			for range messages {
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				sent := someMessage(r)
				kind := websocket.BinaryMessage
				if sent.text {
					kind = websocket.TextMessage
				}
				conn.EnableWriteCompression(r.Intn(4) != 0)
				if err := conn.WriteMessage(kind, sent.data); err != nil {
					t.Fatal(err)
				}
				kind, data, err := conn.ReadMessage()
				if err != nil {
					t.Fatal(err)
				}
				compare(t, sent, message{kind == websocket.TextMessage, data})
			}
		}
	})
}
