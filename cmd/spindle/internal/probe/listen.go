package probe

import (
	"net"
	"net/http"
	"time"
)

// Serve serves HTTP on a listener until end is called. The function end returns immediately, even if a request is in
// progress or a client does not read its response.
func Serve(on net.Listener, h http.Handler) (end func()) { return serve(on, h, 5*time.Second) }

// serve is like Serve. The limit is the time that a client may take to send a request.
func serve(on net.Listener, h http.Handler, limit time.Duration) (end func()) {
	server := &http.Server{
		Handler:        h,
		ReadTimeout:    limit,
		WriteTimeout:   10 * time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	go func() { _ = server.Serve(on) }() // always returns an error once the server is closed
	return func() {
		_ = server.Close()
		_ = on.Close() // the server may not know the listener yet
	}
}
