package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// member runs the loop of one call to Run. It joins the group, serves a term until the term ends, cools down if
// necessary, and joins again. Only the loop's goroutine may change its state.
type member struct {
	g         *Group
	voice     voice
	table     table.Table     // reports its steps to the metrics
	candidate elect.Candidate // competes for slots
	fitness   share.Fitness
	running   sync.WaitGroup // requests in progress, of all terms
	memory    *plan.Memory
	inventory *share.Inventory
	caller    caller

	out     elect.Instant // when the process left the group; zero: it is in the group
	failing error         // why it last failed to join or lost its term
}

// caller tracks how long the loop still waits for the caller's work.
type caller struct {
	gracePeriod <-chan struct{} // closed when the grace period of the work has ended
}

// voice reports what the member does to the log, the observer and the metrics.
type voice struct {
	clock    elect.Clock
	log      *slog.Logger
	events   *loop.Mailbox // nil if there is no observer
	problems loop.Problems
	watch    *telemetry.Watch
	metrics  *metrics
}

func (v *voice) emit(kind spindle.EventKind, ev elect.Event) {
	v.events.Put(int(kind), v.clock.Now().Time(), ev)
}

func (v *voice) emitPartition(kind spindle.EventKind, a *assignment, reason error) {
	v.emit(kind, elect.Event{Token: a.hold.Token, Partition: a.entry.Name, Err: reason})
}

func newMember(g *Group, log *slog.Logger, events *loop.Mailbox) *member {
	m := &member{g: g, memory: plan.NewMemory(g.name, g.config.Lease), fitness: share.Fitness{Lease: g.config.Lease}}
	m.voice = voice{clock: g.config.Clock, log: log, events: events, problems: loop.Problems{Log: log, What: "keep up with the group"},
		watch: g.about.Watch(), metrics: newMetrics(g, g.about)}
	m.table = m.voice.watch.Table(g.table)
	m.candidate = g.config.Candidate(m.table)
	names := make([]string, len(g.partitions))
	for i, p := range g.partitions {
		names[i] = p.name
	}
	m.inventory = share.NewInventory(g.name, names)
	p := &m.candidate.LeaseRecord
	p.ListDigest, p.AcceptsHandover, p.Keep = m.inventory.List.Digest(), false, g.config.Identity
	g.requested.mu.Lock()
	g.requested.changed = true // paused partitions stay paused, and the weight stays set
	g.requested.mu.Unlock()
	m.takeRequests()
	return m
}

// run is a loop.Loop.
func (m *member) run(ctx context.Context) (overdue func(), err error) {
	c := m.g.config
	defer m.voice.watch.Close()
	defer m.voice.metrics.close()
	m.g.runs.Beat(c.Clock.Now())
	m.out = c.Clock.Now()
	for ctx.Err() == nil && err == nil {
		if lease := m.join(ctx); lease != nil {
			var e share.Ending
			e, err = m.serve(ctx, lease)
			m.out = c.Clock.Now()
			m.takeIn(ctx.Done(), c.Lease, m.rests) // joining again would free the old term's partitions for other members
			m.coolDown(ctx, m.fitness.CoolDown(e))
		}
	}
	m.candidate.Abandon()
	err = errors.Join(err, m.awaitWork())
	m.running.Wait()
	m.g.runs.Stop()
	over := func() { m.g.standing.set(false, nil, nil) }
	over() // after Stop, because callers that it wakes check whether the loop is running
	if !m.idle() {
		overdue = func() { m.takeIn(nil, never, m.idle); over() }
	}
	return overdue, err
}

// serve runs one term.
func (m *member) serve(ctx context.Context, lease *elect.Term) (share.Ending, error) {
	t := newTerm(ctx, m, lease)
	t.reports = m.voice.watch.Elected(lease)
	m.voice.log.Info("joined", "slot", t.own.Name, "token", t.own.Token)
	m.voice.emit(spindle.Elected, elect.Event{Token: t.own.Token, Deadline: m.deadline(lease)})
	return t.run(ctx)
}

func (m *member) deadline(t *elect.Term) time.Time {
	return m.g.config.Clock.Now().Time().Add(t.Left())
}

// coolDown keeps this process out of the group for the given pause, because its terms have ended early. It polls the
// group twice per lease duration. If two polls in a row find no live member, it returns early.
func (m *member) coolDown(ctx context.Context, pause time.Duration) {
	for left, empty := pause, 0; left > 0 && empty < 2 && ctx.Err() == nil; empty++ {
		step := min(m.g.config.Lease/2, left)
		m.sleep(ctx, step)
		left -= step
		s, err := m.look(ctx)
		if err != nil && ctx.Err() == nil {
			m.voice.problems.Note(fmt.Errorf("look: %w", err))
		}
		if err != nil || plan.Living(s) > 0 {
			empty = -1
		}
	}
}

// look polls the members while this process is not in the group.
func (m *member) look(ctx context.Context) (s table.GroupSnapshot, err error) {
	began := m.g.config.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, elect.Attempt(m.g.config.Lease))
	defer cancel()
	if s, err = m.table.LookAtGroup(limited, m.g.name, table.GroupQuery{Members: true, Body: true}); err != nil {
		m.g.runs.Fail(err)
		return s, err
	}
	m.learn(s)
	m.g.runs.Beat(began)
	return s, nil
}

// learn remembers and counts the members that a poll has read, whether or not this process is one of them.
func (m *member) learn(s table.GroupSnapshot) {
	m.memory.Learn(s)
	m.voice.metrics.members.Store(int64(plan.Living(s)))
}

// sleep waits while this process is not in the group. Meanwhile, it handles work of earlier terms that returns.
func (m *member) sleep(ctx context.Context, d time.Duration) {
	m.remind()
	m.report(nil)
	m.takeIn(ctx.Done(), d, func() bool { return false })
}

// takeIn handles returned work and the program's requests until the duration d has passed, the given channel is closed,
// or the function enough returns true.
func (m *member) takeIn(over <-chan struct{}, d time.Duration, enough func() bool) {
	late := m.g.config.Clock.Timer(d)
	defer late.Stop()
	for !enough() {
		select {
		case <-m.g.inbox.Ready():
			m.takeReturned()
			m.takeRequests()
			m.report(nil)
		case <-late.C:
			return
		case <-over:
			m.takeReturned() // work that returned just in time
			return
		}
	}
}

// idle reports whether all work has returned.
func (m *member) idle() bool { return m.inventory.All.Busy() == nil }

// rests reports whether only overdue work, which may never return, has not returned.
func (m *member) rests() bool {
	return len(m.overdue()) == len(m.inventory.All.Busy())
}

// awaitWork waits until all work has returned or the grace period has ended.
func (m *member) awaitWork() error {
	m.takeIn(m.caller.gracePeriod, never, m.rests)
	left := m.g.config.Clock.Now().Since(m.out) > m.g.config.Lease
	busy := slices.DeleteFunc(m.inventory.All.Busy(), func(e *share.Entry) bool {
		return e.Busy.Let || e.Busy.Ended > 1 || e.Busy.Ended == 1 && left // its partition is free
	})
	if len(busy) == 0 {
		return nil
	}
	return fmt.Errorf("some work (partitions: %d, first: %q) did not return within one lease duration (%v) after its context was canceled; its partitions become free when the member's lease expires", len(busy), busy[0].Name, m.g.config.Lease)
}
