package agent

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// peers counts how many processes an agent has identified and not closed, and reports those that it closes twice.
type peers struct {
	mu    sync.Mutex
	open  int
	twice int
}

// counted is a process that is counted until it is closed.
type counted struct {
	process
	of     *peers
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

// countPeers counts the processes that the agent identifies from now on.
func countPeers(a *Agent) *peers {
	ps, identify := &peers{}, a.identify
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

// kept returns what an agent still has of its programs, although all of them have ended and closed their connections. It also
// returns where its books contradict what has become of its holds.
func kept(a *Agent, ps *peers) (left []string) {
	keeps := func(bad bool, format string, args ...any) {
		if bad {
			left = append(left, fmt.Sprintf(format, args...))
		}
	}
	for _, h := range a.all() {
		keeps(true, "a hold in phase %d", h.status().phase)
	}
	a.mu.Lock()
	past := slices.Clone(a.past)
	a.mu.Unlock()
	outcomes := map[string]float64{}
	for _, h := range past {
		s := h.status()
		outcomes[s.outcome()]++
		keeps(h.lines.over.Err() == nil, "a response of a hold that was %s", s.outcome())
		keeps(h.wait.ctx.Err() == nil, "the wait of a hold that was %s", s.outcome())
		keeps(s.outcome() == "released" && !s.lifted, "a promise of a hold that was released")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.outcomes)
	families, _ := registry.Gather()
	for _, m := range families[0].Metric {
		outcome, n := m.Label[0].GetValue(), m.Counter.GetValue()
		keeps(len(past) < remembered && n != outcomes[outcome], "a count of %v holds that were %s, of %v", n, outcome, outcomes[outcome])
	}
	a.promises.mu.Lock()
	for name, holds := range a.promises.to {
		for h := range holds {
			s := h.status()
			keeps(s.lifted || s.promised.over(a.clock.Now()) < -time.Second, "a promise of %s that was lifted or is over", name)
		}
	}
	a.promises.mu.Unlock()
	a.programs.mu.Lock()
	for key, p := range a.programs.byKey {
		keeps(true, "the program %s with %d connections, %d holds, %d requests", key, p.conns, len(p.holds), len(p.begins))
	}
	keeps(a.programs.holds != 0, "a number of %d holds", a.programs.holds)
	a.programs.mu.Unlock()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	keeps(ps.open != 0 || ps.twice != 0, "%d open peers, %d closed twice", ps.open, ps.twice)
	return left
}

// A response checks the order of its lines.
type response struct {
	lines []string
	over  bool // the last line says how it ended
}

// hears returns what is wrong with the next line, or "".
func (r *response) hears(event string) string {
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
