package probe

import (
	"net"
	"net/http"
	"time"
)

// Serve answers on a listener until the returned function is called, which waits neither for a request in flight nor for a
// reader that does not read.
func Serve(on net.Listener, h http.Handler) (end func()) { return serve(on, h, 5*time.Second) }

// serve gives a client that long to send a request.
func serve(on net.Listener, h http.Handler, limit time.Duration) (end func()) {
	server := &http.Server{
		Handler:        h,
		ReadTimeout:    limit,
		WriteTimeout:   10 * time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	go func() { _ = server.Serve(on) }() // which fails once it is closed
	return func() {
		_ = server.Close()
		_ = on.Close() // the server may not have it yet
	}
}
