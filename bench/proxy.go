package main

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// proxy starts a proxy for the server at addr, and returns its address. The proxy counts the messages that clients
// send: each HTTP request, and each message of a gRPC call. For example, a heartbeat of an etcd session is a message of
// a long call.
func (g *ground) proxy(addr string, sent *atomic.Int64) (string, error) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	scheme, host, isHTTP := strings.Cut(addr, "://")
	own, behind := &http.Protocols{}, &http.Protocols{}
	own.SetHTTP1(true)
	own.SetUnencryptedHTTP2(true)
	behind.SetHTTP1(isHTTP)
	behind.SetUnencryptedHTTP2(!isHTTP)
	if !isHTTP {
		scheme, host = "http", addr
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: host})
	forward.FlushInterval, forward.ErrorLog = -1, log.New(io.Discard, "", 0)
	forward.Transport = &http.Transport{Protocols: behind, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // a certificate that the server made itself
	server := &http.Server{Protocols: own, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isHTTP {
			sent.Add(1)
		} else {
			r.Body = &messages{ReadCloser: r.Body, sent: sent}
		}
		forward.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(on) }()
	g.onClose(func() { _ = server.Close() })
	if isHTTP {
		return "http://" + on.Addr().String(), nil
	}
	return on.Addr().String(), nil
}

// messages counts the messages of a gRPC call: each has a head of five bytes, the last four of which are its length.
type messages struct {
	io.ReadCloser
	sent *atomic.Int64
	head []byte
	rest uint32 // of the current message
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
