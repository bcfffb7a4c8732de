// Package probe answers health checks and Prometheus about one process that competes for a lock.
//
//   - probe.go: what is asked, and the answers
//   - metrics.go: the answer to Prometheus
//   - listen.go: the listener
package probe

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// answerTimeout is how long the loop may take to answer: work that it waits for runs beside it.
const answerTimeout = time.Second

// A Report is a process's state at one moment.
type Report struct {
	Ready bool   // the program should get requests, as far as the lock goes
	Why   string // what the process does, above all if it is not ready
	Held  bool   // the lock
	Token int64  // while the lock is held
	Left  time.Duration
	Stuck bool // what must not run any more may still run
}

// A Probe answers for one process.
type Probe struct {
	Table, Lock string
	Report      func() Report // called at any time; it does not wait for the loop
	Hooks       []string      // that there are

	asks    chan<- struct{}
	looping atomic.Bool

	begun, lost, heartbeats atomic.Int64
	hooks                   map[string]*atomic.Int64
}

// New returns a probe of a process whose loop answers by receiving from asks.
func New(table, lock string, hooks []string, report func() Report, asks chan<- struct{}) *Probe {
	p := &Probe{Table: table, Lock: lock, Hooks: hooks, Report: report, asks: asks, hooks: map[string]*atomic.Int64{}}
	for _, name := range hooks {
		p.hooks[name] = &atomic.Int64{}
	}
	return p
}

// Looping says that the loop begins. Before that the process is alive without one.
func (p *Probe) Looping() { p.looping.Store(true) }

// Begun counts a term that began.
func (p *Probe) Begun() { p.begun.Add(1) }

// Lost counts a term that was lost.
func (p *Probe) Lost() { p.lost.Add(1) }

// HeartbeatFailed counts a heartbeat that was not acknowledged.
func (p *Probe) HeartbeatFailed() { p.heartbeats.Add(1) }

// HookFailed counts a hook that failed.
func (p *Probe) HookFailed(name string) { p.hooks[name].Add(1) }

// Handler returns the handler of all paths.
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

// loops reports whether the loop answers.
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
