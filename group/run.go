package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// member is the loop of one Run. It joins the group, keeps a term until the term ends, cools down if necessary, and
// joins again. Its state belongs to its goroutine.
type member struct {
	*Group
	log       *slog.Logger
	events    *loop.Mailbox // nil if there is no observer
	problems  loop.Problems
	watch     *telemetry.Watch
	metrics   *metrics
	table     table.Table     // reports its steps to watch
	candidate elect.Candidate // competes for slots
	fitness   fitness
	requests  sync.WaitGroup // requests in progress, of all terms

	vanishings
	caller

	last    string        // the slot that the member last had
	out     elect.Instant // since when the process has not been in the group; zero: it is in the group
	failing error         // why it last failed to join or lost its term
}

// vanishings is the knowledge about members whose rows may vanish.
type vanishings struct {
	missing  map[table.LeaseRef]time.Time     // when the rows of members that partitions name were first missing
	leases   map[table.LeaseRef]time.Duration // the leases of members seen, until their terms are known to have ended
	vanished map[string]vanishing             // slots that have lost their row
}

// caller is the state of the caller's code: its work and its observer.
type caller struct {
	returned    returned
	observing   <-chan struct{} // closed when an overdue observer has returned; nil: none is overdue
	gracePeriod <-chan struct{} // closed when the grace period of the work has ended
	reminded    time.Duration   // for how long work was overdue when that was last logged
}

func newMember(g *Group, log *slog.Logger) *member {
	m := &member{Group: g, log: log,
		vanishings: vanishings{missing: map[table.LeaseRef]time.Time{}, leases: map[table.LeaseRef]time.Duration{}, vanished: map[string]vanishing{}},
		fitness:    fitness{lease: g.config.Lease}}
	m.returned.wake = m.wake
	m.problems.Log, m.problems.What = m.log, "keep up with the group"
	m.watch, m.metrics = g.about.Watch(), newMetrics(g, g.about)
	m.table = m.watch.Table(g.table)
	m.candidate = g.config.Candidate(m.table)
	p := &m.candidate.LeaseRecord
	p.ListDigest, p.AcceptsHandover, p.Weight, p.Keep = g.list.Digest(), false, g.config.Weight, g.config.Identity
	m.events = loop.NewMailbox(g.config.Observe)
	m.inventory.begin()
	m.requested.mu.Lock()
	m.requested.changed = true // paused partitions stay paused
	m.requested.mu.Unlock()
	m.takeRequests()
	return m
}

// Run implements loop.Loop.
func (m *member) Run(ctx context.Context) (err error) {
	defer m.watch.Close()
	defer m.metrics.close()
	limit := m.config.Lease
	if m.config.Handover {
		limit *= 2
	}
	over, forget := loop.GracePeriod(ctx, m.config.Clock, limit)
	defer forget()
	m.gracePeriod = over
	m.runs.Beat(m.config.Clock.Now())
	m.out = m.config.Clock.Now()
	for ctx.Err() == nil && err == nil {
		if lease := m.join(ctx); lease != nil {
			var e ending
			e, err = m.serve(ctx, lease)
			m.out = m.config.Clock.Now()
			m.await(ctx, m.config.Lease) // joining again would free the old term's partitions for other members
			m.coolDown(ctx, m.fitness.coolDown(e))
		}
	}
	err = errors.Join(err, m.awaitWork())
	m.requests.Wait()
	m.runs.Stop()
	observing, late := m.events.Drain(m.config.Lease, m.config.Clock)
	m.observing = observing
	return errors.Join(err, late)
}

// serve runs one term.
func (m *member) serve(ctx context.Context, lease *elect.Term) (ending, error) {
	t := newTerm(ctx, m, lease)
	t.reports = m.watch.Elected(lease)
	m.log.Info("joined", "slot", t.own.Name, "token", t.own.Token)
	m.emit(spindle.Elected, elect.Event{Token: t.own.Token, Deadline: m.deadline(lease)})
	return t.run(ctx)
}

func (m *member) deadline(t *elect.Term) time.Time {
	return m.config.Clock.Now().Time().Add(t.Left())
}

// lost logs and emits that a term has ended.
func (m *member) lost(own table.LeaseRef, reason error) {
	level := slog.LevelWarn
	if errors.Is(reason, spindle.ErrStopped) {
		level = slog.LevelInfo
	}
	m.log.Log(context.Background(), level, "left", "slot", own.Name, "token", own.Token, "reason", reason)
	m.emit(spindle.Lost, elect.Event{Token: own.Token, Err: reason})
	m.failing = reason
}

func (m *member) emit(kind spindle.EventKind, ev elect.Event) {
	m.events.Put(int(kind), m.config.Clock.Now().Time(), ev)
}

func (m *member) emitPartition(kind spindle.EventKind, a *assignment, reason error) {
	m.emit(kind, elect.Event{Token: a.token, Partition: a.name, Err: reason})
}

// coolDown waits while this process must stay out of the group, because its terms have ended early. It looks at the
// group once per lease duration, and ends the wait if two looks in a row show no live member.
func (m *member) coolDown(ctx context.Context, pause time.Duration) {
	lease := m.config.Lease
	empty := false
	for left := pause; left > 0 && ctx.Err() == nil; {
		step := min(lease, left)
		if empty {
			step = min(lease/2, left)
		}
		m.sleep(ctx, step)
		left -= step
		none, err := m.nobodyThere(ctx)
		if err == nil && none && empty {
			return
		}
		empty = err == nil && none
	}
}

// nobodyThere reports whether no member has sent a heartbeat within its lease.
func (m *member) nobodyThere(ctx context.Context) (bool, error) {
	s, err := m.look(ctx)
	for _, o := range s.Members {
		if lives(o) {
			return false, err
		}
	}
	return true, err
}

// look reads the members, for a process that is not in the group.
func (m *member) look(ctx context.Context) (s table.GroupSnapshot, err error) {
	began := m.config.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, elect.Attempt(m.config.Lease))
	defer cancel()
	if s, err = m.table.LookAtGroup(limited, m.name, table.GroupQuery{Members: true, Body: true}); err != nil {
		m.runs.Fail(err)
		return s, err
	}
	m.learnMembers(s)
	m.runs.Beat(began)
	return s, nil
}

// learnMembers updates what is known about members whose rows may vanish.
func (m *member) learnMembers(s table.GroupSnapshot) {
	for h := range m.leases {
		if o := s.Members[h.Name]; o.Exists && over(o, h.Token) {
			delete(m.leases, h)
		}
	}
	for name, o := range s.Members {
		if o.LeaseRecord != nil && s.Unreadable[name] == nil {
			m.leases[table.LeaseRef{Name: name, Token: o.Token}] = o.LeaseRecord.Lease
		}
		for token, p := range o.OrphanLeases { // its lock row was deleted
			m.leases[table.LeaseRef{Name: name, Token: token}] = p.Lease
		}
	}
	for h := range m.missing {
		if s.Members[h.Name].Exists {
			delete(m.missing, h)
		}
	}
	for _, o := range s.Partitions {
		for _, with := range named(o) {
			part, _ := table.PartOf(with.Name)
			if _, known := m.missing[with]; !known && !s.Members[with.Name].Exists && part.Group == m.name {
				m.missing[with] = s.At
			}
		}
	}
}

// await waits until all work has returned, for at most limit.
func (m *member) await(ctx context.Context, limit time.Duration) {
	m.takeIn(ctx, limit, func() bool { n, _ := m.inventory.busy(); return n == 0 })
}

// sleep waits between two terms. In the meantime, work of the last term may return or keep hanging.
func (m *member) sleep(ctx context.Context, d time.Duration) {
	m.remind()
	m.report(nil)
	m.takeIn(ctx, d, func() bool { return false })
}

// takeIn handles returned work and the program's requests, for at most d or until enough returns true.
func (m *member) takeIn(ctx context.Context, d time.Duration, enough func() bool) {
	late := m.config.Clock.Timer(d)
	defer late.Stop()
	for !enough() {
		select {
		case <-m.wake:
			m.takeReturned()
			m.takeRequests()
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitWork waits until all work has returned or the grace period after the end of Run's ctx has ended.
func (m *member) awaitWork() error {
	for m.inventory.anyBusy() {
		select {
		case <-m.wake:
			m.takeReturned()
		case <-m.gracePeriod:
			m.takeReturned()
			n, first := m.inventory.busy()
			if n == 0 {
				return nil // both happened; the work was in time
			}
			return fmt.Errorf("the work on %d partitions, such as %q, has not returned within a lease (%v) of being told to stop; these partitions become free when the member's lease expires", n, first, m.config.Lease)
		}
	}
	return nil
}

// Overdue implements loop.Loop.
func (m *member) Overdue() bool { return m.observing != nil || m.inventory.anyBusy() }

// End implements loop.Loop.
func (m *member) End() {
	m.standing.end()
	if m.observing != nil {
		<-m.observing
	}
	for m.inventory.anyBusy() {
		<-m.wake
		m.takeReturned()
	}
}
