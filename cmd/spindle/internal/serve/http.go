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
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

//go:embed page
var embedded embed.FS

const (
	tick  = 2 * time.Second  // a page that receives nothing for a few ticks tells its user
	stall = 10 * time.Second // a page that does not accept a frame for this long is disconnected
	slow  = time.Minute      // a client that takes longer than this to read any other response is also disconnected
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

// guarded adds security headers to every response. With these headers, a browser loads nothing from other sites, runs
// only scripts that this server delivers, and does not show the page in a frame.
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

// onlyFor rejects a request unless its Host header is an IP address, localhost or one of the given hosts. This prevents
// DNS rebinding, in which a malicious site makes its own name resolve to an address that only the user's browser can
// reach. The site's scripts could then read the data.
func onlyFor(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		if _, err := netip.ParseAddr(host); err != nil && !strings.EqualFold(host, "localhost") && !slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			http.Error(w, fmt.Sprintf("requests for host %q are not accepted; to allow this name, start spindle serve with --host %[1]q", host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
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

// events sends a snapshot to a page, and then the changes after each read of the table. If it has nothing else to send,
// it sends ticks.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	if r.Method == http.MethodHead {
		return
	}
	s.metrics.pages.Inc()
	defer s.metrics.pages.Dec()
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
	for version := never; ; {
		frames, now, more := s.since(version)
		if len(frames) == 0 {
			select {
			case <-more:
				continue
			case <-time.After(tick):
				frames = [][]byte{s.tick()}
			case <-r.Context().Done():
				return
			}
		}
		if version = now; send(frames...) != nil {
			return
		}
	}
}

// Start listens on the address that --listen gives, and serves in the background until ctx ends or serving fails. The
// returned channel then receives nil or the error, respectively. Unless the address is a loopback address, Start logs a
// warning, and the server also accepts requests for this machine's name and for the host in --listen.
func (s *Server) Start(ctx context.Context) (url string, ended <-chan error, err error) {
	listens, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return "", nil, terminal.Misuse("--listen %q must be host:port, such as %s: %w", s.Listen, DefaultListen, err)
	}
	on, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return "", nil, fmt.Errorf("--listen %s: %w; another spindle serve may be running (port 0 selects a free port)", s.Listen, err)
	}
	hosts := s.Hosts
	if tcp, ok := on.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		terminal.Complain("listening on %v without authentication, so everyone who can reach this address sees every lock, holder and value; to restrict access, listen on 127.0.0.1 behind a proxy with a login", on.Addr())
		name, _ := os.Hostname()
		hosts = append(hosts, name, listens)
	}
	hosts = slices.DeleteFunc(hosts, func(name string) bool { return name == "" })
	why := make(chan error, 1)
	go func() { why <- serve(ctx, on, onlyFor(hosts, s.Handler())) }()
	return terminal.URL(on.Addr()), why, nil
}

// serve serves HTTP on a listener until ctx ends or serving fails.
func serve(ctx context.Context, on net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: stall, WriteTimeout: slow, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // a graceful shutdown would wait for open pages
	defer stop()
	if err := server.Serve(on); ctx.Err() == nil {
		return err
	}
	return nil
}
