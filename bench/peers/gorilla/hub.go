package main

import (
	"log"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"tws.test/gopeer"
)

const writeWait = 10 * time.Second

// hub follows the library's chat example: one goroutine owns the set of clients, each client has a bounded channel and
// a goroutine that writes, and a client whose channel is full is cut off. Messages are prepared once.
type hub struct {
	clients map[*client]struct{}
	join    chan *client
	leave   chan *client
	publish chan *websocket.PreparedMessage
}

type client struct {
	conn *websocket.Conn
	send chan *websocket.PreparedMessage
}

func newHub() *hub {
	return &hub{
		clients: map[*client]struct{}{},
		join:    make(chan *client),
		leave:   make(chan *client),
		publish: make(chan *websocket.PreparedMessage),
	}
}

func (h *hub) run() {
	for {
		select {
		case c := <-h.join:
			h.clients[c] = struct{}{}
		case c := <-h.leave:
			h.drop(c)
		case m := <-h.publish:
			for c := range h.clients {
				select {
				case c.send <- m:
				default:
					h.drop(c)
				}
			}
		}
	}
}

func (h *hub) drop(c *client) {
	if _, ok := h.clients[c]; ok {
		delete(h.clients, c)
		close(c.send)
	}
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		log.Print(err)
		return
	}
	c := &client{conn: conn, send: make(chan *websocket.PreparedMessage, gopeer.BroadcastQueue())}
	h.join <- c
	go c.writePump()
	go c.readPump(h)
}

func (c *client) readPump(h *hub) {
	defer func() {
		h.leave <- c
		c.conn.Close()
	}()
	for {
		kind, data, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		m, err := websocket.NewPreparedMessage(kind, data)
		if err != nil {
			return
		}
		h.publish <- m
	}
}

func (c *client) writePump() {
	defer c.conn.Close()
	for m := range c.send {
		_ = c.conn.SetWriteDeadline(time.Now().Add(writeWait))
		if err := c.conn.WritePreparedMessage(m); err != nil {
			return
		}
	}
	_ = c.conn.WriteControl(websocket.CloseMessage, nil, time.Now().Add(writeWait))
}
