package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// host is a machine with its clocks, its programs, and at most one agent. It is the clock of its agent.
type host struct {
	w      *world
	number int
	rate   float64
	offset int64        // of the wall clock
	step   atomic.Int64 // by how much the wall clock was set since
	stood  atomic.Int64 // how long the monotonic clock stood still
	drawn  atomic.Int64 // nonces

	// Under w.mu.
	agent     *agentProcess // nil while there is none
	resumes   time.Time     // until when the whole host is suspended
	cut       time.Time     // until when nothing passes between its agent and Spanner
	full      time.Time     // until when its agent often has no more descriptors
	disturbed time.Time     // until when its agent may be late, because of a fault
}

func (h *host) dice(about ...any) dice {
	return h.w.dice(append([]any{"host", h.number}, about...)...)
}

func (h *host) disturb(d time.Duration) {
	if at := time.Now().Add(d); at.After(h.disturbed) {
		h.disturbed = at
	}
	h.w.quiet(d)
}

func (h *host) elapsed() time.Duration { return time.Since(h.w.begun) }

func (h *host) local(d time.Duration) int64 { return int64(float64(d) * h.rate) }

// Now implements elect.Clock.
func (h *host) Now() elect.Instant {
	return elect.Instant{
		Wall: h.w.begun.UnixNano() + h.offset + h.local(h.elapsed()) + h.step.Load(),
		Mono: h.local(h.elapsed() - time.Duration(h.stood.Load())),
	}
}

// clocks returns what programs and agents read.
func (h *host) clocks() reading {
	const up = 1000 * time.Second
	now, ms := h.Now(), int64(time.Millisecond)
	return reading{Boottime: h.local(up+h.elapsed()) / ms, Monotonic: (now.Mono + int64(up/2)) / ms, Unix: now.Wall / ms}
}

// Timer implements elect.Clock.
func (h *host) Timer(d time.Duration) *time.Timer {
	return time.NewTimer(time.Duration(float64(d)/h.rate) + h.late("timer", d))
}

// AfterFunc implements elect.Clock.
func (h *host) AfterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(time.Duration(float64(d)/h.rate)+h.late("func", d), f)
}

func (h *host) late(about ...any) time.Duration {
	return h.dice(about...).between(1, 100*time.Microsecond)
}

// Random implements elect.Clock. Two calls at one instant have the same result, unless they may be meant for nonces, which
// must differ.
func (h *host) Random(d time.Duration) time.Duration {
	if d > time.Hour {
		return h.dice("nonce", h.drawn.Add(1)).between(0, d)
	}
	return h.dice("random", d).between(0, d)
}

// agentProcess is the process of one agent, from its start to its end. It can be stopped before and after each request
// to Spanner, each reading of its clocks, and each access to a socket.
type agentProcess struct {
	host   *host
	name   string
	agent  *Agent
	at     *commandtest.Pipes
	server *http.Server
	died   chan struct{}

	// Under w.mu.
	dead    bool
	resumes time.Time // until when it is stopped
	sockets []*socket
	peers   *peers
}

// startAgent starts an agent. w.mu is held.
func (h *host) startAgent() {
	w := h.w
	w.started++
	a := &agentProcess{host: h, name: fmt.Sprintf("agent%d.%d", h.number, w.started), at: commandtest.NewPipes(), died: make(chan struct{})}
	a.agent = New(Config{Locks: table.Table{Store: link{a}}, TableName: "locktable", MaxHolds: maxHoldsIn, Host: fmt.Sprint("host", h.number),
		Log: slog.New(slog.NewTextHandler(logged{a}, &slog.HandlerOptions{ReplaceAttr: withoutTime}))})
	a.agent.clock, a.agent.promises.clock = h, h
	a.agent.clocks = func() reading {
		a.chanceOfStop("clocks", 0.02)
		now := h.clocks()
		a.chanceOfStop("clocks were read", 0.02)
		return now
	}
	a.agent.identify = func(c net.Conn) (process, *problem) {
		if h.isFull("identify") {
			return nil, wrong(http.StatusServiceUnavailable, "unavailable", "too many open files")
		}
		return evidence{newKnown(c.(far).program), h}, nil
	}
	a.peers = countPeers(a.agent)
	h.agent = a
	a.server = a.agent.Serve(a.at)
	w.tracef(a.name, "starts")
}

// isFull reports whether there is no descriptor for something.
func (h *host) isFull(what string) bool {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return time.Now().Before(h.full) && h.dice("descriptor", what, h.drawn.Add(1)).chance(0.5)
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// logged puts an agent's log into the trace.
type logged struct{ a *agentProcess }

func (l logged) Write(b []byte) (int, error) {
	w := l.a.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracef(l.a.name, "%s", b)
	return len(b), nil
}

// gate blocks the caller while the agent is stopped.
func (a *agentProcess) gate(where string) {
	for {
		wait := a.stopped()
		if wait <= 0 {
			return
		}
		time.Sleep(wait + a.host.dice("gate", where).between(1, 100*time.Microsecond))
	}
}

func (a *agentProcess) stopped() time.Duration {
	a.host.w.mu.Lock()
	defer a.host.w.mu.Unlock()
	if a.dead {
		return 0
	}
	return max(time.Until(a.resumes), time.Until(a.host.resumes))
}

// chanceOfStop stops the agent here, with a small chance. A stop between two steps of the agent is otherwise rare.
func (a *agentProcess) chanceOfStop(where string, chance float64) {
	w := a.host.w
	w.mu.Lock()
	if d := a.host.dice("stop", where); w.faulty() && w.plan.driver["agent stopped"] > 0 && d.chance(chance) {
		a.stop(d.spread(w.plan.longest/20, 2*w.plan.longest))
	}
	w.mu.Unlock()
	a.gate(where)
}

// stop stops the agent for a while. w.mu is held.
func (a *agentProcess) stop(d time.Duration) {
	a.resumes = time.Now().Add(d)
	a.host.disturb(d + a.host.w.plan.longest)
	a.host.w.fault("agent stopped")
	a.host.w.tracef(a.name, "is stopped for %v", d)
}

// ends ends the process, as SIGKILL does. Requests that it has sent may still be applied. w.mu is held.
func (a *agentProcess) ends(why string) {
	if a.dead {
		return
	}
	a.dead = true
	a.host.agent = nil
	a.host.disturb(a.host.w.plan.longest)
	a.host.w.tracef(a.name, "ends: %s", why)
	close(a.died)
	sockets := a.sockets
	go func() {
		_ = a.server.Close()
		for _, s := range sockets { // the rest ends what the process was doing; none of its requests are applied any more
			_ = s.far.Close()
			_ = s.Close()
		}
		for _, h := range a.agent.all() {
			h.put(event{what: exits})
			h.put(event{what: streamEnds})
		}
	}()
}

// drains makes the agent end as after SIGTERM.
func (a *agentProcess) drains() {
	w := a.host.w
	limit := w.plan.longest * 5
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		defer cancel()
		a.agent.Drain(ctx, "agent-stops")
		w.mu.Lock()
		defer w.mu.Unlock()
		a.ends("drained")
		w.restartAgent(a.host)
	}()
}

// dial returns a connection of a process to the host's agent, or nil if there is no agent. w.mu is held.
func (h *host) dial(of *fakeProcess) *socket {
	a := h.agent
	if a == nil {
		return nil
	}
	near, other := newWire(of, func() { a.gate("socket") })
	s := &socket{near, other, a}
	a.sockets = append(a.sockets, s)
	a.at.Connect <- other
	return s
}

// socket is a connection of a program to an agent.
type socket struct {
	*wire
	far   far
	agent *agentProcess
}

func (s *socket) closes() { _ = s.Close() }

// evidence is what an agent knows of a program. There may be no descriptor for it.
type evidence struct {
	known
	host *host
}

func (e evidence) Watch(closed, exited func()) error {
	if e.host.isFull("watch") {
		return syscall.EMFILE
	}
	return e.known.Watch(closed, exited)
}
