package deflate

import (
	"context"
	"math/rand"
	"testing"

	"github.com/coder/websocket"
)

func TestCoder(t *testing.T) {
	servers(t, func(t *testing.T, url string, r *rand.Rand) {
		for _, mode := range []websocket.CompressionMode{
			websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover,
		} {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			conn, response, err := websocket.Dial(ctx, url,
				&websocket.DialOptions{CompressionMode: mode, CompressionThreshold: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			agreed(t, response)
			conn.SetReadLimit(limit)
			for range messages {
				sent := someMessage(r)
				kind := websocket.MessageBinary
				if sent.text {
					kind = websocket.MessageText
				}
				if err := conn.Write(ctx, kind, sent.data); err != nil {
					t.Fatal(err)
				}
				kind, data, err := conn.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, sent, message{kind == websocket.MessageText, data})
			}
		}
	})
}
