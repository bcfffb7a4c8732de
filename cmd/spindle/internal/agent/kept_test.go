package agent

import (
	"fmt"
	"net"
	"slices"
	"sync"
)

// Peers counts how many processes an agent has identified and not closed, and reports those that it closes twice.
type Peers struct {
	mu    sync.Mutex
	open  int
	twice int
}

// counted is a process that is counted until it is closed.
type counted struct {
	process
	of     *Peers
	closed bool // under of.mu
}

// Close implements process.
func (c *counted) Close() {
	c.of.mu.Lock()
	if c.of.open--; c.closed {
		c.of.twice++
	}
	c.closed = true
	c.of.mu.Unlock()
	c.process.Close()
}

// CountPeers counts the processes that the agent identifies from now on.
func CountPeers(a *Agent) *Peers {
	ps, identify := &Peers{}, a.identify
	a.identify = func(c net.Conn) (process, *problem) {
		p, bad := identify(c)
		if bad != nil {
			return nil, bad
		}
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.open++
		return &counted{process: p, of: ps}, nil
	}
	return ps
}

// EndAll ends all holds as if their programs had asked for it.
func EndAll(a *Agent) {
	for _, h := range a.all() {
		h.put(event{what: asked})
	}
}

// Kept returns what an agent still has of its programs, although all of them have ended and closed their connections. It also
// returns where its books contradict what has become of its holds.
func Kept(a *Agent, peers *Peers) (kept []string) {
	keeps := func(bad bool, format string, args ...any) {
		if bad {
			kept = append(kept, fmt.Sprintf(format, args...))
		}
	}
	for _, h := range a.all() {
		keeps(true, "a hold in phase %d", h.status().phase)
	}
	a.mu.Lock()
	past := slices.Clone(a.past)
	a.mu.Unlock()
	ended, outcomes := map[string]bool{}, map[string]float64{}
	for _, h := range past {
		s := h.status()
		ended[h.id] = s.lifted
		outcome := s.outcome()
		if s.failure != nil && outcome == "released" {
			outcome = "unknown"
		}
		outcomes[outcome]++
		h.lines.mu.Lock()
		keeps(!h.lines.ended, "a response of a hold that was %s", outcome)
		h.lines.mu.Unlock()
		keeps(h.wait.ctx.Err() == nil, "the wait of a hold that was %s", outcome)
		keeps(outcome == "released" && !s.lifted, "a promise of a hold that was released")
	}
	a.counts.mu.Lock()
	for outcome, n := range a.counts.outcome {
		keeps(len(past) < remembered && n != outcomes[outcome], "a count of %v holds that were %s, of %v", n, outcome, outcomes[outcome])
	}
	a.counts.mu.Unlock()
	a.barred.mu.Lock()
	for name, bars := range a.barred.names {
		keeps(slices.ContainsFunc(bars, func(b bar) bool { return ended[b.hold] }), "a bar of %s", name)
	}
	a.barred.mu.Unlock()
	a.programs.mu.Lock()
	for key, p := range a.programs.byKey {
		keeps(true, "the program %s with %d connections, %d holds", key, p.conns, len(p.holds))
	}
	keeps(a.programs.holds != 0, "a number of %d holds", a.programs.holds)
	a.programs.mu.Unlock()
	a.beginnings.mu.Lock()
	keeps(a.beginnings.busy != 0 || len(a.beginnings.queue) != 0, "%d turns, %d queues for them", a.beginnings.busy, len(a.beginnings.queue))
	a.beginnings.mu.Unlock()
	peers.mu.Lock()
	defer peers.mu.Unlock()
	keeps(peers.open != 0 || peers.twice != 0, "%d open peers, %d closed twice", peers.open, peers.twice)
	return kept
}

// A Response checks the order of its lines.
type Response struct {
	lines []string
	over  bool // the last line says how it ended
}

// Hears returns what is wrong with the next line, or "".
func (r *Response) Hears(event string) string {
	last := func(of ...string) bool {
		return slices.ContainsFunc(of, func(e string) bool { return slices.Contains(r.lines, e) })
	}
	var bad bool
	switch event {
	case "hello":
		bad = len(r.lines) > 0
	case "waiting":
		bad = !slices.Equal(r.lines, []string{"hello"})
	case "held":
		bad = last("held")
	case "until", "jeopardy":
		bad = !last("held")
	case "stop":
		bad = !last("held") || last("stop")
	case "refused", "timeout", "done":
		bad = last("held")
	}
	bad = bad || r.over && event != "leader" || event != "hello" && len(r.lines) == 0
	r.lines = append(r.lines, event)
	r.over = r.over || slices.Contains([]string{"lost", "refused", "timeout", "done"}, event)
	if bad {
		return fmt.Sprintf("the line %s comes at the end of %v", event, r.lines)
	}
	return ""
}
