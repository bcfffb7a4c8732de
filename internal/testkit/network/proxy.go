package network

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// NewProxy starts an HTTP proxy for the server at addr, on a free port of this machine. The argument addr is a URL or,
// for a gRPC server, a host and port. NewProxy returns the proxy's own address in the same form. It calls the argument
// before with each request that arrives. That function can delay or change the request. If streams is positive, each
// connection to the proxy can have at most that many requests in progress. The caller must call stop.
func NewProxy(addr string, streams int, before func(*http.Request)) (own string, stop func(), err error) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	scheme, host, isHTTP := strings.Cut(addr, "://")
	front, behind := &http.Protocols{}, &http.Protocols{}
	front.SetHTTP1(true)
	front.SetUnencryptedHTTP2(true)
	behind.SetHTTP1(isHTTP)
	behind.SetUnencryptedHTTP2(!isHTTP)
	own = "http://" + on.Addr().String()
	if !isHTTP {
		scheme, host, own = "http", addr, on.Addr().String()
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: host})
	forward.FlushInterval, forward.ErrorLog = -1, log.New(io.Discard, "", 0)
	forward.Transport = &http.Transport{Protocols: behind, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the server's certificate is self-signed
	server := &http.Server{Protocols: front, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before(r)
			forward.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(on) }()
	return own, func() { _ = server.Close() }, nil
}
