//go:build chaos && unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// fault is something that the nemesis does to a member for a while. A weight is its frequency relative to the others.
// Times are in leases.
type fault struct {
	name              string
	weight            int
	shortest, longest float64
	begin, end        func(*member)
}

var faults = []fault{
	{"SIGKILL", 4, 0, 0.5, (*member).kill, (*member).start},
	{"SIGSTOP", 5, 1.05, 2.5, func(m *member) { m.signal(syscall.SIGSTOP) }, func(m *member) { m.signal(syscall.SIGCONT) }},
	{"short SIGSTOP", 2, 0.2, 1.05, func(m *member) { m.signal(syscall.SIGSTOP) }, func(m *member) { m.signal(syscall.SIGCONT) }},
	{"SIGTERM", 3, 0, 0.5, (*member).terminate, (*member).start}, // most of them with handover
	{"cut", 2, 0.3, 2, func(m *member) { m.link.Cut() }, mend},
	{"black hole", 2, 0.3, 2.5, func(m *member) { m.link.To.BlackHole(); m.link.From.BlackHole() }, mend},
	{"requests lost in a black hole", 2, 0.3, 2.5, func(m *member) { m.link.To.BlackHole() }, mend},
	{"replies lost in a black hole", 2, 0.3, 2.5, func(m *member) { m.link.From.BlackHole() }, mend},
	{"delay", 2, 0.5, 3, func(m *member) { m.slow(0.1) }, mend},
	{"delay of about a lease", 2, 0.5, 3, func(m *member) { m.slow(0.5) }, mend},
	{"everybody cut off", 1, 0.3, 2, cutEverybody, mendEverybody},
}

var lockFaults = []fault{
	{"StepDown", 3, 0, 0.5, func(m *member) { m.order(command{Do: "step down"}) }, func(*member) {}},
	{"request", 3, 0, 0.5, (*member).isAsked, func(*member) {}},
}

// Members that are stopped for some leases, so that the other members divide the partitions among themselves and
// release some to the returning member; members with a different list; and partitions that no member can claim once
// their member has died.
var groupFaults = []fault{
	{"leave and join", 4, 1.5, 4, (*member).terminate, (*member).start},
	{"SIGKILL for long", 2, 1.5, 4, (*member).kill, (*member).start},
	{"canary", 3, 2, 4, (*member).update, (*member).rollBack},
	{"claims of a partition fail", 2, 2, 5, damaged(refer), (*member).undamaged},
	{"rows of a partition garbled", 1, 2, 5, damaged(garble(garbage)), (*member).undamaged},
	{"rows of a partition newer", 1, 2, 5, damaged(garble(newer)), (*member).undamaged},
}

// update starts the member with a list that has one additional partition.
func (m *member) update() {
	m.terminate()
	m.startAs(canary(m.team.base))
}

func (m *member) rollBack() {
	m.terminate()
	m.start()
}

// damaged damages one of the member's partitions, if it has any, and kills the member, which then restarts.
func damaged(d damage) func(*member) {
	return func(m *member) {
		var lock string
		m.team.h.await(0, func() bool { lock = m.lock(0); return true })
		m.mend = d(m.team, lock)
		m.kill()
		m.start()
	}
}

func (m *member) undamaged() {
	if m.mend != nil {
		m.mend()
	}
}

// canary is c with one additional partition.
func canary(c candidate) candidate {
	c.Partitions++
	return c
}

func mend(m *member) { m.link.Mend() }

// slow delays all traffic, in both directions, by so many leases.
func (m *member) slow(leases float64) {
	d := m.team.leases(leases)
	m.link.To.Slow(d)
	m.link.From.Slow(d)
}

// isAsked makes another process ask the holder, which can be this member, to hand the lock over. The token can be an
// old one.
func (m *member) isAsked() {
	t := m.team
	m.next().order(command{Do: "ask", Token: t.h.latest(t.base.Lock)})
}

func cutEverybody(m *member) {
	for _, m := range m.team.members {
		m.link.Cut()
	}
}

func mendEverybody(m *member) {
	for _, m := range m.team.members {
		m.link.Mend()
	}
}

func (t *team) leases(n float64) time.Duration { return time.Duration(n * float64(t.base.Lease)) }

// attack is one decision of the nemesis. It contains everything that is random, so a seed produces the same attacks in
// the same order. Their effect depends on the state of the processes.
type attack struct {
	fault  fault
	lasts  time.Duration
	rest   time.Duration // before the next
	holder bool          // it is meant for the holder
	lock   int           // of this of the team's locks
	member int           // or for this one
	agent  bool          // or for its agent
}

func (t *team) next(r *rand.Rand) attack {
	f := pick(r, t.faults())
	rest := r.Float64() / 2
	if r.IntN(25) == 0 {
		rest = 8 // a priority asks for three leases in which nothing fails
	}
	ofAgent := t.base.Agents > 0 && r.IntN(2) == 0
	return attack{
		fault:  f,
		lasts:  t.leases(f.shortest + r.Float64()*(f.longest-f.shortest)),
		rest:   t.leases(rest),
		holder: r.IntN(4) > 0, // most of them: a fault of anybody else changes little
		lock:   r.IntN(len(t.locks)),
		member: r.IntN(len(t.members)),
		agent:  ofAgent,
	}
}

// faults returns the faults that the team can suffer.
func (t *team) faults() []fault {
	if t.base.Partitions > 0 {
		return append(faults[:len(faults):len(faults)], groupFaults...)
	}
	return append(faults[:len(faults):len(faults)], lockFaults...)
}

func pick(r *rand.Rand, faults []fault) fault {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	n := r.IntN(sum)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// torment attacks the team for a stretch, or until ctx ends, and returns when everything has been repaired. At most two
// members suffer at a time. An attack waits for a while until the lock has a holder, because the test needs terms.
func (t *team) torment(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stretch)
	defer cancel()
	var under sync.WaitGroup
	defer under.Wait()
	two := make(chan struct{}, 2)
	for ctx.Err() == nil {
		a := t.next(t.dice)
		var holder *member
		t.h.await(t.leases(4), func() bool {
			if term := t.h.holder(t.locks[a.lock], now()-int64(4*reportHeld)); term != nil {
				holder = t.member(term.who)
			}
			return holder != nil || ctx.Err() != nil
		})
		m := t.members[a.member]
		if a.holder && holder != nil {
			m = holder
		}
		two <- struct{}{}
		if m.busy.CompareAndSwap(false, true) {
			under.Go(func() {
				defer func() { m.busy.Store(false); <-two }()
				m.suffer(a)
			})
		} else {
			<-two
		}
		pause(ctx, a.rest)
	}
}

// lock returns one of the member's locks, the first from that one on, or "". The history must be locked.
func (m *member) lock(from int) string {
	t, who := m.team, m.current().who
	for i := range t.locks {
		lock := t.locks[(from+i)%len(t.locks)]
		if term := t.h.holder(lock, now()-int64(4*reportHeld)); term != nil && term.who == who {
			return lock
		}
	}
	return ""
}

func (m *member) suffer(a attack) {
	if f, ok := agentFaults[a.fault.name]; ok && a.agent && m.agent != nil {
		a.fault = f
	}
	r := record{Kind: kindFault, Lock: m.team.base.Lock, Who: m.current().who, Note: a.fault.name}
	if (a.fault.name == "SIGTERM" || a.fault.name == "leave and join") && m.current().handover {
		r.Note += " with handover"
	}
	m.team.h.add(r)
	a.fault.begin(m)
	time.Sleep(a.lasts)
	a.fault.end(m)
	m.team.h.add(record{Kind: kindMend, Lock: r.Lock, Who: r.Who, Note: fmt.Sprintf("%s, after %v", a.fault.name, a.lasts)})
}
