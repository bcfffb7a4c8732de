// Package health serves health checks and Prometheus metrics for one process that competes for a lock, and reports the
// process's state to systemd.
//
//   - health.go: the health checks and their HTTP server
//   - collector.go: the metrics
//   - systemd.go: the reports to systemd
package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// A Probe answers requests about one process. On a nil *Probe, Looping and Count do nothing.
type Probe struct {
	Table, Lock string
	Report      func() Report // can be called at any time, and does not wait for the loop
	Hooks       []string      // the names of all hooks

	asks    chan<- struct{}
	looping atomic.Bool
	counts  map[Counter]*atomic.Int64
}

// A Counter is what a Probe counts. A hook's name counts the failures of the hook.
type Counter string

// The other counters.
const (
	Begun           Counter = "begun"     // terms that began
	Lost            Counter = "lost"      // terms that were lost
	HeartbeatFailed Counter = "heartbeat" // heartbeats that were not acknowledged
)

// New returns a probe for a process whose main loop answers by receiving from asks.
func New(table, lock string, hooks []string, report func() Report, asks chan<- struct{}) *Probe {
	p := &Probe{Table: table, Lock: lock, Hooks: hooks, Report: report, asks: asks, counts: map[Counter]*atomic.Int64{}}
	for _, name := range append([]string{string(Begun), string(Lost), string(HeartbeatFailed)}, hooks...) {
		p.counts[Counter(name)] = &atomic.Int64{}
	}
	return p
}

// Looping reports that the main loop begins. Before that, the process counts as alive.
func (p *Probe) Looping() {
	if p != nil {
		p.looping.Store(true)
	}
}

// Count counts an event.
func (p *Probe) Count(what Counter) {
	if p != nil {
		p.counts[what].Add(1)
	}
}

// Handler returns the handler for all paths.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collector{p})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

func (p *Probe) livez(w http.ResponseWriter, r *http.Request) {
	if !p.looping.Load() {
		answer(w, true, "starting: "+p.Report().Why)
		return
	}
	limit, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	select {
	case p.asks <- struct{}{}:
		answer(w, true, p.Report().Why)
	case <-limit.Done():
		answer(w, false, fmt.Sprintf("the loop has not answered for %v: %s", answerTimeout, p.Report().Why))
	}
}

func (p *Probe) readyz(w http.ResponseWriter, _ *http.Request) {
	now := p.Report()
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
