package agent

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// driverSteps is how many faults the driver injects.
const driverSteps = 50

// world is one run.
type world struct {
	seed    uint64
	plan    plan
	begun   time.Time
	store   memstore.Store
	running sync.WaitGroup // programs
	counts  map[string]int // of what has happened in this run and in those before

	mu        sync.Mutex // for everything below, and held while a request is applied
	hosts     []*host
	programs  []*client // by slot
	started   int
	calm      bool      // no new faults
	closing   bool      // programs end instead of asking for another hold
	outage    time.Time // until when no agent reaches Spanner
	quietAt   time.Time // when the last fault ends
	committed time.Time // the timestamp of the commit that is being applied
	observed
}

func (w *world) dice(about ...any) dice {
	return diceOf(w.seed, append(about, int64(time.Since(w.begun)))...)
}

func (w *world) faulty() bool { return !w.calm }

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *world) fault(kind string) { w.counts["fault: "+kind]++ }

// quiet records that a fault lasts for d.
func (w *world) quiet(d time.Duration) {
	if at := time.Now().Add(d); at.After(w.quietAt) {
		w.quietAt = at
	}
}

// after calls f later, with w.mu held.
func (w *world) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

func (w *world) run() {
	w.begin()
	for range driverSteps {
		time.Sleep(w.dice("driver").spread(w.plan.longest/20, 2*w.plan.longest))
		w.mu.Lock()
		w.drive(w.dice("drives"))
		w.check()
		w.mu.Unlock()
	}
	w.settle()
	w.finish()
	w.counts["simulated seconds"] += int(time.Since(w.begun).Seconds())
	time.Sleep(time.Minute) // for what hangs until its time limit
}

func (w *world) begin() {
	w.begun = time.Now()
	d := w.dice("plan")
	w.plan = drawPlan(d)
	w.observed = observe(len(w.plan.roles))
	w.store.OnCommit = w.commits
	w.store.Ahead = func() time.Duration { return w.dice("ahead").between(0, w.plan.uncertainty+1) }
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracef("-", "plan %+v", w.plan)
	for i := range w.plan.hosts {
		h := &host{w: w, number: i, rate: pick(d, 1, w.plan.slowest, w.plan.fastest), offset: int64(d.between(-5*time.Hour, 5*time.Hour))}
		w.hosts = append(w.hosts, h)
		h.startAgent()
	}
	w.programs = make([]*client, len(w.plan.roles))
	for slot := range w.programs {
		w.after(d.spread(10*time.Microsecond, w.plan.longest), func() { w.startProgram(slot) })
	}
}

// startProgram starts a program in a slot. w.mu is held.
func (w *world) startProgram(slot int) {
	if w.closing {
		return
	}
	w.started++
	role := w.plan.roles[slot]
	p := &client{w: w, slot: slot, role: role, host: w.hosts[role.host], name: fmt.Sprintf("%c%d", 'a'+slot, w.started), died: make(chan struct{})}
	p.process = w.newProcess()
	switch d := w.dice("start", p.name); { // its clocks may differ, in a container or a virtual machine
	case d.chance(0.2):
		p.shift = reading{Boottime: d.Int64N(1e6), Monotonic: d.Int64N(1e6), Unix: 0}
	case d.chance(0.2):
		p.shift = reading{Boottime: d.Int64N(100) - 50, Monotonic: d.Int64N(100) - 50, Unix: d.Int64N(100) - 50}
	}
	w.programs[slot] = p
	w.tracef(p.name, "starts on host %d, shift %v", role.host, p.shift)
	w.running.Go(p.run)
}

func (w *world) newProcess() *fakeProcess {
	w.started++
	return newProcess(fmt.Sprint("process ", w.started))
}

func (w *world) restartProgram(p *client) {
	after := w.dice("restart", p.name).spread(w.plan.longest/50, w.plan.longest)
	w.quiet(after)
	w.after(after, func() { w.startProgram(p.slot) })
}

func (w *world) restartAgent(h *host) {
	after := h.dice("restart").spread(w.plan.longest/50, 2*w.plan.longest)
	h.disturb(after + w.plan.longest)
	w.after(after, func() {
		if h.agent == nil && !w.closing {
			h.startAgent()
		}
	})
}

// drive injects one fault.
func (w *world) drive(d dice) {
	var kinds []string
	for _, kind := range drivenFaults {
		for range w.plan.driver[kind] {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return
	}
	kind := pick(d, kinds...)
	if p := w.victim(d); p != nil && w.breakProgram(kind, p, d) || w.breakHost(kind, pick(d, w.hosts...), d) {
		w.fault(kind)
	}
}

// victim returns a program, preferably one that holds a lock.
func (w *world) victim(d dice) *client {
	var live, holding []*client
	for _, p := range w.programs {
		if p == nil || p.dead {
			continue
		}
		live = append(live, p)
		if p.now != nil && p.now.working {
			holding = append(holding, p)
		}
	}
	if len(holding) > 0 && d.chance(0.6) {
		live = holding
	}
	if len(live) == 0 {
		return nil
	}
	return pick(d, live...)
}

// breakProgram injects a fault into a program. It returns false if the fault is not for programs.
func (w *world) breakProgram(kind string, p *client, d dice) bool {
	soon := func() time.Duration { return d.spread(10*time.Microsecond, 50*time.Millisecond) }
	late := func() time.Duration { return d.spread(50*time.Millisecond, 2*w.plan.longest) }
	switch kind {
	case "program killed":
		p.ends("SIGKILL", soon(), soon())
	case "program dumps core":
		if d.chance(0.5) {
			p.ends("SIGABRT", soon(), late())
		} else {
			p.ends("SIGABRT", late(), late())
		}
	case "program stopped":
		length := d.spread(w.plan.longest/20, 3*w.plan.longest)
		p.resumes = time.Now().Add(length)
		w.quiet(length)
		w.tracef(p.name, "is stopped for %v", length)
		w.after(length, w.check)
	case "program leaves a child with its socket":
		w.tracef(p.name, "leaves a child with its socket")
		parent := p.process
		p.process = w.newProcess()
		if t := p.now; t != nil && happened(t.socket.closed) {
			t.working = false // a child without an open socket must not act
		}
		parent.exits()
	default:
		return false
	}
	return true
}

// breakHost injects a fault into a host, its agent or the network. It returns false if it did not.
func (w *world) breakHost(kind string, h *host, d dice) bool {
	length := d.spread(w.plan.longest/20, 3*w.plan.longest)
	switch kind {
	case "host suspended":
		w.suspend(h, length)
	case "wall clock set":
		by := d.spread(time.Millisecond, 5*time.Hour)
		if !w.plan.suspends && d.chance(0.6) {
			by = -by
		}
		h.step.Add(int64(by))
		h.disturb(2 * w.plan.longest)
		w.tracef("-", "the wall clock of host %d is set by %v", h.number, by)
	case "descriptors run out":
		h.full = time.Now().Add(length)
		h.disturb(length)
		w.tracef("-", "the agent of host %d has no more descriptors for %v", h.number, length)
	case "network cut":
		h.cut = time.Now().Add(length)
		h.disturb(length + 2*w.plan.longest)
		w.tracef("-", "the network of host %d is cut for %v", h.number, length)
	case "outage":
		w.outage = time.Now().Add(length)
		for _, h := range w.hosts {
			h.disturb(length + 2*w.plan.longest)
		}
		w.tracef("-", "outage for %v", length)
	case "lock released by hand":
		return w.releaseByHand(h, d)
	default:
		return h.agent != nil && w.breakAgent(kind, h.agent, d)
	}
	return true
}

func (w *world) breakAgent(kind string, a *agentProcess, d dice) bool {
	switch kind {
	case "agent killed":
		a.ends("SIGKILL")
		w.restartAgent(a.host)
	case "agent stopped":
		a.stop(d.spread(w.plan.longest/20, 3*w.plan.longest))
		return false // it has been counted
	case "agent drained":
		w.tracef(a.name, "SIGTERM")
		a.drains()
	case "step down":
		w.tracef(a.name, "steps down")
		go func() {
			for _, h := range a.agent.all() {
				h.stop("stepdown")
			}
		}()
	default:
		return false
	}
	return true
}

// suspend stops a host. Only its wall clock and its boot clock continue.
func (w *world) suspend(h *host, length time.Duration) {
	if time.Now().Before(h.resumes) {
		return
	}
	h.resumes = time.Now().Add(length)
	h.disturb(length + 2*w.plan.longest)
	w.tracef("-", "host %d is suspended for %v", h.number, length)
	w.after(length, func() {
		h.stood.Add(int64(length))
		w.check()
	})
}

// releaseByHand releases a lock as `spindle release` does, although its program may still act.
func (w *world) releaseByHand(h *host, d dice) bool {
	p := w.victim(d)
	if p == nil || p.now == nil || !p.now.working {
		return false
	}
	t := p.now
	h.disturb(2 * w.plan.longest)
	w.tracef("-", "an operator releases %v under %d", t.names, t.token)
	for _, name := range t.names {
		_ = table.Table{Store: &w.store}.Break(context.Background(), table.Token(t.token), name) // fails if it is not held any more
	}
	return true
}

// settle lets all faults end, and then checks that every program has its turn.
func (w *world) settle() {
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for {
		w.mu.Lock()
		left := time.Until(w.quietAt)
		w.mu.Unlock()
		if left <= 0 {
			break
		}
		time.Sleep(left)
	}
	w.mu.Lock()
	w.tracef("-", "the last fault has ended")
	start := slices.Clone(w.turns)
	w.mu.Unlock()
	limit := 4*w.plan.longest + time.Duration(len(w.plan.roles))*w.plan.longest
	time.Sleep(limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	some := false
	for slot, r := range w.plan.roles {
		had := w.turns[slot] > start[slot]
		some = some || had
		if r.fair && !had {
			w.violate("turns", "the program in slot %d had no turn in %v without faults", slot, limit)
		}
	}
	if !some {
		w.violate("turns", "no program had a turn in %v without faults", limit)
	}
}

// finish ends all programs, and checks that nothing is left over.
func (w *world) finish() {
	w.mu.Lock()
	w.closing = true
	w.tracef("-", "the run ends")
	w.mu.Unlock()
	limit := time.Duration(len(w.plan.roles)+6) * 2 * w.plan.longest
	w.after(limit, func() {
		for _, p := range w.programs {
			if !p.dead {
				w.violate("turns", "%s still waits, %v after the last request for a lock", p.name, limit)
				p.ends("given up", 0, 0)
			}
		}
	})
	w.running.Wait()
	time.Sleep(6*w.plan.longest + lastWords)
	w.mu.Lock()
	for _, h := range w.hosts {
		if h.agent == nil {
			continue
		}
		for _, left := range kept(h.agent.agent, h.agent.peers) {
			w.violate("nothing left over", "%s has %s", h.agent.name, left)
		}
		h.agent.ends("over")
	}
	for name, row := range w.store.Rows() {
		if leaseRow.MatchString(name) && !strings.HasPrefix(name, "flood") && !strings.Contains(row.Writer, `"free":true`) {
			w.violate("nothing left over", "the lease row %+v", row)
		}
	}
	w.mu.Unlock()
}

var leaseRow = regexp.MustCompile(`_\d{16}$`)

func (w *world) tracef(who, format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%16.9fs %-10s %s", time.Since(w.begun).Seconds(), who, strings.TrimSpace(fmt.Sprintf(format, args...))))
}
