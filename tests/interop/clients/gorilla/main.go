// A gorilla/websocket client against an echo server: sizes, fragments, a ping, the closing handshake.
//
// usage: gorilla URL [CA.pem]    prints "ok" and ends with 0 when everything came back as it left
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const patience = 30 * time.Second

func check(err error) {
	if err != nil {
		fmt.Println("gorilla:", err)
		os.Exit(1)
	}
}

func trust(file string) *tls.Config {
	pem, err := os.ReadFile(file)
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		check(errors.New("no certificate in " + file))
	}
	return &tls.Config{RootCAs: pool}
}

func echo(c *websocket.Conn, kind int, sent []byte) {
	check(c.WriteMessage(kind, sent))
	gotKind, got, err := c.ReadMessage()
	check(err)
	if gotKind != kind || !bytes.Equal(got, sent) {
		check(fmt.Errorf("sent %d bytes, got %d others", len(sent), len(got)))
	}
}

// The writer sends a fragment whenever its buffer is full.
func fragments(c *websocket.Conn) {
	w, err := c.NextWriter(websocket.TextMessage)
	check(err)
	var all strings.Builder
	for i := 0; i < 1000; i++ {
		part := fmt.Sprintf("part %d ü ", i)
		all.WriteString(part)
		_, err = w.Write([]byte(part))
		check(err)
	}
	check(w.Close())
	_, got, err := c.ReadMessage()
	check(err)
	if string(got) != all.String() {
		check(errors.New("the fragments came back otherwise"))
	}
}

func ping(c *websocket.Conn) {
	answer := ""
	c.SetPongHandler(func(data string) error { answer = data; return nil })
	check(c.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(patience)))
	echo(c, websocket.TextMessage, []byte("behind the ping"))
	if answer != "are you there" {
		check(fmt.Errorf("pong %q", answer))
	}
}

func closing(c *websocket.Conn) {
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "bye")
	check(c.WriteControl(websocket.CloseMessage, bye, time.Now().Add(patience)))
	_, _, err := c.ReadMessage()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseNormalClosure || closed.Text != "bye" {
		check(fmt.Errorf("closed by: %w", err))
	}
}

func main() {
	dialer := websocket.Dialer{HandshakeTimeout: patience, EnableCompression: true, WriteBufferSize: 4096}
	if len(os.Args) > 2 {
		dialer.TLSClientConfig = trust(os.Args[2])
	}
	c, _, err := dialer.Dial(os.Args[1], nil)
	check(err)
	check(c.SetReadDeadline(time.Now().Add(patience)))
	for _, size := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20} {
		echo(c, websocket.TextMessage, bytes.Repeat([]byte("t"), size))
		echo(c, websocket.BinaryMessage, bytes.Repeat([]byte{0xff}, size))
	}
	fragments(c)
	ping(c)
	closing(c)
	fmt.Println("ok")
}
