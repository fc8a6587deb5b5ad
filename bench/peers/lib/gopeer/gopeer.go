// Package gopeer is what the peers written in Go have in common and what has nothing to do with the library under
// test: where to listen, whether with TLS, and the line that says the server is ready.
package gopeer

import (
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
)

// MaxMessage is the largest message of the workloads.
const MaxMessage = 16 << 20

// Addr is the HOST:PORT to listen on.
func Addr() string {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s HOST:PORT", os.Args[0])
	}
	return os.Args[1]
}

// Deflate says whether permessage-deflate was asked for.
func Deflate() bool {
	return os.Getenv("DEFLATE") == "1"
}

// BroadcastQueue is how many messages may wait for one slow receiver where the application has to choose.
func BroadcastQueue() int {
	n, err := strconv.Atoi(os.Getenv("PEER_BROADCAST_QUEUE"))
	if err != nil || n < 1 {
		return 256
	}
	return n
}

// CertFiles names the certificate and key when TLS was asked for.
func CertFiles() (cert, key string, ok bool) {
	cert, key = os.Getenv("TLS_CERT"), os.Getenv("TLS_KEY")
	return cert, key, cert != "" && key != ""
}

// Ready says that connections are accepted from now on.
func Ready() {
	fmt.Printf("listening on %s\n", Addr())
}

// Serve runs a net/http server until the process is ended.
func Serve(handler http.Handler) {
	ln, err := net.Listen("tcp", Addr())
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	Ready()
	if cert, key, ok := CertFiles(); ok {
		// HTTP/2 has no hijack; a WebSocket client does not offer it, and this keeps it out for all.
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		log.Fatal(server.ServeTLS(ln, cert, key))
	}
	log.Fatal(server.Serve(ln))
}
