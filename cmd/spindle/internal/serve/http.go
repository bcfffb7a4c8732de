package serve

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

//go:embed page
var embedded embed.FS

const (
	tick  = 2 * time.Second  // a page that receives nothing for a few ticks reports that
	stall = 10 * time.Second // a page that does not accept a frame for this long is disconnected
	slow  = time.Minute      // so is a client that has not read any other response by then
)

// Handler returns the handler for all paths.
func (s *Server) Handler() http.Handler {
	page, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // it is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.HandleFunc("GET /events", s.events)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", s.healthz)
	return guarded(mux)
}

// guarded adds headers that prevent a browser from loading anything from other sites, from running scripts other than
// the page's own, and from showing the page in a frame of another page.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.ContentLength != 0 { // no handler reads a body, so don't wait for one that never arrives
			h.Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		}
		next.ServeHTTP(w, r)
	})
}

// OnlyFor rejects requests whose Host is not an IP address, localhost or one of the hosts. Another site can point its
// own name to an address that only this browser can reach, and the browser would then let the other site's page read
// the data.
func OnlyFor(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		if _, err := netip.ParseAddr(host); err != nil && !strings.EqualFold(host, "localhost") && !slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			http.Error(w, fmt.Sprintf("requests for host %q are not accepted; if users, a proxy or Prometheus use that name, start spindle serve with --host %[1]q", host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// age returns a frame with the current age of the snapshot, which is sent along with it.
func (s *Server) age() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return frame("age", ageFrame{Old: s.old().Milliseconds()})
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	err := s.stale()
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// events sends a page a snapshot, and then the changes that each look finds.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	s.metrics.pages.Inc()
	defer s.metrics.pages.Dec()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	out := http.NewResponseController(w)
	send := func(frames ...[]byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		for _, f := range frames {
			n, err := w.Write(f)
			s.metrics.bytes.Add(float64(n))
			if err != nil {
				return err
			}
		}
		return out.Flush()
	}
	s.open()
	snapshot, version := s.whole()
	if send(snapshot, s.age()) != nil {
		return
	}
	for {
		frames, now, ok, more := s.feed.since(version)
		if !ok {
			snapshot, now = s.whole()
			frames = [][]byte{snapshot, s.age()}
		}
		if len(frames) > 0 {
			if version = now; send(frames...) != nil {
				return
			}
			continue
		}
		select {
		case <-more:
		case <-time.After(tick):
			if send([]byte("event: tick\ndata:\n\n")) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// Serve serves HTTP on a listener until ctx ends.
func Serve(ctx context.Context, on net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: stall, WriteTimeout: slow, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // a graceful shutdown would wait for open pages
	defer stop()
	if err := server.Serve(on); ctx.Err() == nil {
		return err
	}
	return nil
}
