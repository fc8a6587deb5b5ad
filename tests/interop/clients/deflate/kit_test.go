// Package deflate sends random messages through permessage-deflate to echo servers of this library, with three Go
// libraries as clients. TWS_ECHO has the servers' addresses, one a line: "WHAT ws://HOST:PORT/".
package deflate

import (
	"bytes"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	messages = 40
	patience = 60 * time.Second
	limit    = 16 << 20
)

type message struct {
	text bool
	data []byte
}

var words = strings.Fields(`the message "id": room { } null grüße мир 日本語 🚀 0.25 true [1,2,3]`)

func someText(r *rand.Rand, size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		b.WriteString(words[r.Intn(len(words))])
		b.WriteByte(' ')
	}
	return b.Bytes()
}

// someMessage is text, zeros or a repeated piece of noise, of a size around the borders that matter.
func someMessage(r *rand.Rand) message {
	sizes := []int{0, 1, 125, 126, 511, 512, 1000, 4096, 65535, 65536, 200_000}
	size := sizes[r.Intn(len(sizes))]
	switch r.Intn(4) {
	case 0, 1:
		return message{true, someText(r, size)}
	case 2:
		return message{false, make([]byte, size)}
	default:
		piece := make([]byte, 1+r.Intn(40_000))
		r.Read(piece)
		return message{false, bytes.Repeat(piece, size/len(piece)+1)[:size]}
	}
}

// servers runs a test against each of them, with messages that are the same every time.
func servers(t *testing.T, run func(t *testing.T, url string, r *rand.Rand)) {
	for i, line := range strings.Split(strings.TrimSpace(os.Getenv("TWS_ECHO")), "\n") {
		what, url, found := strings.Cut(line, " ")
		if !found {
			t.Fatalf("TWS_ECHO has %q", line)
		}
		t.Run(what, func(t *testing.T) { run(t, url, rand.New(rand.NewSource(int64(7692+i)))) })
	}
}

func compare(t *testing.T, sent, got message) {
	t.Helper()
	if got.text != sent.text || !bytes.Equal(got.data, sent.data) {
		t.Fatalf("%d bytes sent, %d came back, or others", len(sent.data), len(got.data))
	}
}

func agreed(t *testing.T, response *http.Response) {
	t.Helper()
	if !strings.HasPrefix(response.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		t.Fatalf("not agreed on compression: %v", response.Header)
	}
}
