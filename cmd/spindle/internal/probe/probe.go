// Package probe serves health checks and Prometheus metrics for one process that competes for a lock.
//
//   - probe.go: the health checks
//   - metrics.go: the metrics
//   - listen.go: the HTTP server
package probe

import (
	"context"
	"fmt"
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

// A Probe answers requests about one process.
type Probe struct {
	Table, Lock string
	Report      func() Report // can be called at any time, and does not wait for the loop
	Hooks       []string      // the names of all hooks

	asks    chan<- struct{}
	looping atomic.Bool

	begun, lost, heartbeats atomic.Int64
	hooks                   map[string]*atomic.Int64
}

// New returns a probe for a process whose main loop answers by receiving from asks.
func New(table, lock string, hooks []string, report func() Report, asks chan<- struct{}) *Probe {
	p := &Probe{Table: table, Lock: lock, Hooks: hooks, Report: report, asks: asks, hooks: map[string]*atomic.Int64{}}
	for _, name := range hooks {
		p.hooks[name] = &atomic.Int64{}
	}
	return p
}

// Looping reports that the main loop begins. Before that, the process counts as alive.
func (p *Probe) Looping() { p.looping.Store(true) }

// Begun counts a term that began.
func (p *Probe) Begun() { p.begun.Add(1) }

// Lost counts a term that was lost.
func (p *Probe) Lost() { p.lost.Add(1) }

// HeartbeatFailed counts a heartbeat that was not acknowledged.
func (p *Probe) HeartbeatFailed() { p.heartbeats.Add(1) }

// HookFailed counts a hook that failed.
func (p *Probe) HookFailed(name string) { p.hooks[name].Add(1) }

// Handler returns the handler for all paths.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

func (p *Probe) livez(w http.ResponseWriter, r *http.Request) {
	if !p.looping.Load() {
		answer(w, true, "starting: "+p.Report().Why)
		return
	}
	if p.loops(r.Context()) {
		answer(w, true, p.Report().Why)
		return
	}
	answer(w, false, fmt.Sprintf("the loop has not answered for %v: %s", answerTimeout, p.Report().Why))
}

// loops reports whether the main loop answers.
func (p *Probe) loops(ctx context.Context) bool {
	limit := time.NewTimer(answerTimeout)
	defer limit.Stop()
	select {
	case p.asks <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
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
