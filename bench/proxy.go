package main

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// proxy starts a proxy for the server at addr, and returns the proxy's address. If addr is a URL, the proxy counts the
// HTTP requests that clients send. Otherwise, it counts the messages that they send in gRPC calls. For example, each
// heartbeat of an etcd session is one message in a long-lived streaming call.
func (g *ground) proxy(addr string, sent *atomic.Int64) (string, error) {
	isHTTP := strings.Contains(addr, "://")
	own, stop, err := network.NewProxy(addr, 0, func(r *http.Request) {
		if isHTTP {
			sent.Add(1)
		} else {
			r.Body = &messages{ReadCloser: r.Body, sent: sent}
		}
	})
	if err == nil {
		g.onClose(stop)
	}
	return own, err
}

// messages counts the messages of a gRPC call. Each message begins with a five-byte header, whose last four bytes are
// the message's length.
type messages struct {
	io.ReadCloser
	sent *atomic.Int64
	head []byte
	rest uint32 // unread bytes of the current message
}

func (m *messages) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if m.rest > 0 {
			m.rest--
			continue
		}
		if m.head = append(m.head, b); len(m.head) == 5 {
			m.sent.Add(1)
			m.rest, m.head = binary.BigEndian.Uint32(m.head[1:]), nil
		}
	}
	return n, err
}
