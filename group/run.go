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
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// member runs the loop of one call to Run. It joins the group, serves a term until the term ends, cools down if
// necessary, and joins again. Only the goroutine of the loop may access its state.
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

	memory *plan.Memory
	caller

	last    string        // the slot that the member last had
	out     elect.Instant // when the process left the group; zero: it is in the group
	failing error         // why it last failed to join or lost its term
}

// caller is the state of the caller's code: its work and its observer.
type caller struct {
	returned    returned
	observing   <-chan struct{} // closed when an overdue observer has returned; nil: none is overdue
	gracePeriod <-chan struct{} // closed when the grace period of the work has ended
	reminded    time.Duration   // how long work had been overdue when this was last logged
}

func newMember(g *Group, log *slog.Logger) *member {
	m := &member{Group: g, log: log,
		memory: plan.NewMemory(g.name, g.config.Lease), fitness: fitness{lease: g.config.Lease}}
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

// coolDown keeps this process out of the group for the given pause, because its terms have ended early. It polls the
// group once per lease duration. If two polls in a row find no live member, it returns early.
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
		s, err := m.look(ctx)
		none := err == nil && plan.Living(s) == 0
		if none && empty {
			return
		}
		empty = none
	}
}

// look polls the members, for a process that is not in the group.
func (m *member) look(ctx context.Context) (s table.GroupSnapshot, err error) {
	began := m.config.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, elect.Attempt(m.config.Lease))
	defer cancel()
	if s, err = m.table.LookAtGroup(limited, m.name, table.GroupQuery{Members: true, Body: true}); err != nil {
		m.runs.Fail(err)
		return s, err
	}
	m.memory.Learn(s)
	m.runs.Beat(began)
	return s, nil
}

// await waits until all work has returned, for at most limit.
func (m *member) await(ctx context.Context, limit time.Duration) {
	m.takeIn(ctx, limit, func() bool { n, _ := m.inventory.busy(); return n == 0 })
}

// sleep waits between two terms. During the wait, it handles work of the last term that returns.
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
				return nil // the work returned just in time
			}
			return fmt.Errorf("the work on %d partitions, such as %q, did not return within one lease duration (%v) after it was told to stop; these partitions become free when the member's lease expires", n, first, m.config.Lease)
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
