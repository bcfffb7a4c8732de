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
	"github.com/spindle-lock/spindle/internal/spread"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// member is the loop of one Run: it joins the group, keeps a term until that ends, and joins again. Its state belongs to
// its one goroutine.
type member struct {
	*Group
	log       *slog.Logger
	events    *loop.Mailbox // nil: no observer
	problems  loop.Problems
	watch     *telemetry.Watch
	metrics   *metrics
	table     table.Table     // as the watch sees it
	candidate elect.Candidate // for slots
	plan      *spread.Plan

	traces   map[*share]*trace
	missing  map[table.Hold]time.Time     // since when the rows of members are missing that partitions name
	promised map[table.Hold]time.Duration // the leases of those that were seen in the last look

	returned  *returned
	observing <-chan struct{} // closed when an observer has returned that was overdue; nil: none was
	patience  <-chan struct{} // closed when whoever was to stop has had the time to
	pause     time.Duration   // before it joins again
	last      string          // the slot that it had
	reminded  time.Duration   // for how long work had not returned when that was said
}

func newMember(g *Group) *member {
	names := make([]string, len(g.shares))
	for i, s := range g.shares {
		names[i] = s.name
	}
	m := &member{Group: g, log: g.config.Log.With("table", g.spanner.Table, "group", g.name, "id", g.config.ID), plan: spread.New(names),
		traces: map[*share]*trace{}, missing: map[table.Hold]time.Time{}, returned: newReturned()}
	m.problems.Log, m.problems.What = m.log, "keep up with the group"
	m.watch, m.metrics = g.about.Watch(), newMetrics(g, g.about)
	m.table = m.watch.Table(g.table)
	m.candidate = g.config.Candidate(m.table)
	m.candidate.Promise.Plan, m.candidate.Promise.Obeys = g.digest, false
	m.events = loop.NewMailbox(g.config.Observe)
	return m
}

func (m *member) run(ctx context.Context) (err error) {
	defer m.watch.Close()
	defer m.metrics.close()
	limit := m.config.Lease
	if m.config.Handover {
		limit *= 2
	}
	over, forget := loop.Patience(ctx, m.config.Clock, limit)
	defer forget()
	m.patience = over
	m.pulse.Beat(m.config.Clock.Now())
	for ctx.Err() == nil && err == nil {
		if lease := m.join(ctx); lease != nil {
			began := m.config.Clock.Now()
			err = m.serve(ctx, lease)
			m.rest(ctx, m.config.Clock.Now().Since(began))
		}
	}
	err = errors.Join(err, m.outlive())
	m.pulse.Stop()
	observing, late := m.events.Drain(m.config.Lease, m.config.Clock)
	m.observing = observing
	return errors.Join(err, late)
}

// serve keeps one term.
func (m *member) serve(ctx context.Context, lease *elect.Term) error {
	t := newTerm(m, lease)
	t.reports = m.watch.Elected(lease)
	lease.Jeopardy = func(err error) {
		m.log.Warn("jeopardy: a heartbeat failed", "token", t.hold.Token, "left", lease.Left().Round(time.Millisecond), "err", err)
		m.emit(spindle.Jeopardy, elect.Event{Token: t.hold.Token, Err: m.wrap("hold", err), Deadline: m.deadline(lease)})
	}
	lease.Safe = func() {
		m.log.Info("safe: a heartbeat was acknowledged again", "token", t.hold.Token)
		m.emit(spindle.Safe, elect.Event{Token: t.hold.Token, Deadline: m.deadline(lease)})
	}
	m.log.Info("joined", "slot", t.hold.Name, "token", t.hold.Token)
	m.emit(spindle.Elected, elect.Event{Token: t.hold.Token, Deadline: m.deadline(lease)})
	return t.run(ctx)
}

func (m *member) deadline(t *elect.Term) time.Time {
	return m.config.Clock.Now().Time().Add(t.Left())
}

// lost says that a term is over.
func (m *member) lost(hold table.Hold, reason error) {
	level := slog.LevelWarn
	if errors.Is(reason, spindle.ErrStopped) {
		level = slog.LevelInfo
	}
	m.log.Log(context.Background(), level, "left", "slot", hold.Name, "token", hold.Token, "reason", reason)
	m.emit(spindle.Lost, elect.Event{Token: hold.Token, Err: reason})
}

// rest waits before the next term: until all work of the last one has returned, or its lease has run out, so that
// nobody takes a partition before that; and longer, twice as long each time, if terms end soon.
func (m *member) rest(ctx context.Context, lasted time.Duration) {
	if lasted >= 10*m.config.Lease {
		m.pause = 0
	}
	m.await(ctx, m.config.Lease)
	m.pulse.Rest(m.pause)
	for range m.pause / m.config.Lease {
		m.sleep(ctx, m.config.Lease)
	}
	m.pause = min(max(2*m.pause, m.config.Lease), 10*m.config.Lease)
}

// await waits for all work to return.
func (m *member) await(ctx context.Context, limit time.Duration) {
	m.takeIn(ctx, limit, func() bool { return m.busy() == 0 })
}

// sleep lets time pass between two terms. Work of the last one may return meanwhile, or still hang.
func (m *member) sleep(ctx context.Context, d time.Duration) {
	m.remind()
	m.takeIn(ctx, d, func() bool { return false })
}

// takeIn takes in what work has returned, until that is enough, for at most d.
func (m *member) takeIn(ctx context.Context, d time.Duration, enough func() bool) {
	late := m.config.Clock.Timer(d)
	defer late.Stop()
	for !enough() {
		select {
		case <-m.returned.wake:
			m.takeReturned()
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// outlive waits for all work to return, until it has had its time after Run's ctx has ended.
func (m *member) outlive() error {
	for m.busy() > 0 {
		select {
		case <-m.returned.wake:
			m.takeReturned()
		case <-m.patience:
			if m.takeReturned(); m.busy() == 0 {
				return nil // both: it was in time
			}
			return fmt.Errorf("the work of %d of the partitions, such as %q, has not returned within a lease (%v) of being told to stop: they are free once the member's lease has run out", m.busy(), m.firstBusy(), m.config.Lease)
		}
	}
	return nil
}

// busy is how many partitions' work has not returned, of whatever term.
func (m *member) busy() (n int) {
	for _, s := range m.shares {
		if s.busy != nil {
			n++
		}
	}
	return n
}

func (m *member) firstBusy() string {
	for _, s := range m.shares {
		if s.busy != nil {
			return s.name
		}
	}
	return ""
}

// takeReturned takes in what work has returned.
func (m *member) takeReturned() []*holding {
	done := m.returned.take()
	for _, h := range done {
		h.working, h.busy = false, nil
		m.stuck.CompareAndSwap(h, nil)
	}
	return done
}

// overdue reports whether the caller's code has not returned in time.
func (m *member) overdue() bool { return m.observing != nil || m.busy() > 0 }

// linger waits, however long, for what was overdue: two Runs must not call the same code at once.
func (m *member) linger() {
	if m.observing != nil {
		<-m.observing
	}
	for m.busy() > 0 {
		<-m.returned.wake
		m.takeReturned()
	}
}

func (m *member) emit(kind spindle.EventKind, ev elect.Event) {
	m.events.Put(int(kind), m.config.Clock.Now().Time(), ev)
}

// try limits one attempt of whatever step.
func (m *member) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, elect.Attempt(m.config.Lease))
	defer cancel()
	return step(ctx)
}

// returned is what work has returned and the loop does not know of yet.
type returned struct {
	mu   sync.Mutex
	list []*holding
	wake chan struct{} // has room for one
}

func newReturned() *returned { return &returned{wake: make(chan struct{}, 1)} }

func (r *returned) put(h *holding) {
	r.mu.Lock()
	r.list = append(r.list, h)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *returned) take() []*holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}
