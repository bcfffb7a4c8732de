// Package health serves health checks and Prometheus metrics for one process that competes for a lock, and reports the
// process's state to systemd.
//
//   - health.go: the health checks and their HTTP server
//   - collector.go: the metrics
//   - systemd.go: the reports to systemd
//   - pings.go: the watchdog pings that a program sends to this process instead of to systemd
package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// answerTimeout is how long the main loop may take to answer. Longer work runs outside the loop.
const answerTimeout = time.Second

// A Report is a snapshot of a process's state.
type Report struct {
	Ready bool   // as far as the lock is concerned, the program can receive requests
	Why   string // what the process is doing, and so why it is not ready
	Held  bool   // the process holds the lock
	Token int64  // the token, while the lock is held
	Left  time.Duration
	Stuck bool // a program or service that should have ended may still be running
}

// A Probe answers requests about one process, and counts what happens in it.
type Probe struct {
	counters
	table, lock string
	report      func() Report // can be called at any time, and does not wait for the loop
	asks        chan<- struct{}
	looping     atomic.Bool
}

// New returns a probe for a process that has hooks with these names. The process's main loop must receive from asks.
func New(table, lock string, hooks []string, report func() Report, asks chan<- struct{}) *Probe {
	return &Probe{counters: newCounters(hooks), table: table, lock: lock, report: report, asks: asks}
}

// Looping tells the probe that the main loop has begun. Until then, the process counts as alive.
func (p *Probe) Looping() { p.looping.Store(true) }

// Handler returns the handler for all paths.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics(), promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

func (p *Probe) livez(w http.ResponseWriter, r *http.Request) {
	if !p.looping.Load() {
		answer(w, true, "starting: "+p.report().Why)
		return
	}
	limit, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	select {
	case p.asks <- struct{}{}:
		answer(w, true, p.report().Why)
	case <-limit.Done():
		answer(w, false, fmt.Sprintf("the loop has not answered for %v: %s", answerTimeout, p.report().Why))
	}
}

func (p *Probe) readyz(w http.ResponseWriter, _ *http.Request) {
	now := p.report()
	answer(w, now.Ready, now.Why)
}

func answer(w http.ResponseWriter, ok bool, why string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, why)
}

// Serve serves HTTP on a listener until end is called. Calling end does not block, even if a request is in progress or
// a client does not read its response.
func Serve(on net.Listener, h http.Handler) (end func()) { return serve(on, h, 5*time.Second) }

// serve is like Serve. The limit is the time that a client may take to send a request.
func serve(on net.Listener, h http.Handler, limit time.Duration) (end func()) {
	server := &http.Server{Handler: h, ReadTimeout: limit, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = server.Serve(on) }() // always returns an error once the server is closed
	return func() {
		_ = server.Close()
		_ = on.Close() // the server may not know the listener yet
	}
}
