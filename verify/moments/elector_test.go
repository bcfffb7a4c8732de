package moments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

// electors are the machine and its rival.
type electors struct {
	own, rival *spindle.Lock
	leads      atomic.Int64 // how many leader functions of the machine run
	done       chan error

	mu      sync.Mutex
	term    spindle.Term                // the last one of the machine
	until   map[spindle.Token]time.Time // the latest deadline of each term that was seen, by the machine's clock
	stopped spindle.Token               // of the term that Run's end has ended
	told    told
	returns bool // the leader function is to return
}

// rivalLease differs from the machine's lease, so that neither can stand for the other.
const rivalLease = moments.Lease / 2

// suspended suspends the machine, after a look at its deadline.
func suspended(d time.Duration) func(*moments.World) {
	return func(w *moments.World) {
		w.Values.(*electors).look(w)
		w.Clock.Wall.Add(int64(d))
	}
}

func has(l *spindle.Lock) func() bool {
	return func() bool { ok, _ := l.HasLock(); return ok }
}

// An elector leads, steps down, competes again and stops. Whatever happens at whatever moment: two never hold the lock,
// the leader's context ends no later than the next heartbeat after its lock is gone, it leads no longer than a lease after it
// sent the last word that was answered, events are in order, a loss is dated by the deadline, calls that wait return when what
// they wait for is so and never before, Run ends in time, with an error exactly if the lock is left to expire, its function does
// not run on, and the other candidate leads within three leases.
func TestElectorAtEachMoment(t *testing.T) {
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint("handover=", handover), func(t *testing.T) {
			var more []spindle.Option
			if handover {
				more = append(more, spindle.WithHandover())
			}
			moments.AtEachMoment(t, moments.Machine{
				Live: func(w *moments.World) { liveElector(w, more) },
				Events: moments.Common(map[string]func(*moments.World){
					"it is asked to step down": func(w *moments.World) { _ = w.Values.(*electors).own.StepDown(context.Background()) },
					"an operator releases it":  moments.Operator("m"),
					"it is requested":          moments.Requested("m"),
					"the rival joins":          func(w *moments.World) { w.Values.(*electors).join(w) },
					"its function returns":     func(w *moments.World) { w.Values.(*electors).finish(w) },
					"it was suspended":         suspended(moments.Lease), "it was suspended for a while": suspended(moments.Lease / 2),
				}),
				After: electorsAfter,
			})
		})
	}
}

func liveElector(w *moments.World, more []spindle.Option) {
	e := &electors{done: make(chan error, 1), until: map[spindle.Token]time.Time{}}
	w.Values = e
	e.own = spindle.New(nil, "locktable", "m", append(more, w.Options(), spindle.WithLeader(e.work(w)), spindle.WithObserver(e.observe(w)))...)
	e.rival = spindle.New(nil, "locktable", "m", append(more, w.Beside("machine"), spindle.WithLease(rivalLease))...)
	defer w.Apart(has(e.own), has(e.rival))()
	defer w.Renewed(has(e.own), []string{"confirm", "heartbeat"})()
	defer w.Every(moments.Lease/50, func() error { e.look(w); return e.probe() })()
	if w.Only() || !w.Happens("its wall clock is set back") { // after a leap ahead, nothing tells those who wait that it is undone
		defer w.Prompt("Wait", e.isKnown, func(ctx context.Context) error { _, err := e.own.Wait(ctx); return err })()
	}
	defer w.Prompt("WaitElected", has(e.own), func(ctx context.Context) error { _, err := e.own.WaitElected(ctx); return err })()
	if err := e.own.Run(w.Ctx, e.done); err != nil {
		w.Errorf("Run: %v", err)
		return
	}
	time.Sleep(moments.Lease + moments.Lease/2)
	e.join(w)
	step, cancel := context.WithTimeout(context.Background(), 3*moments.Lease)
	_ = e.own.StepDown(step)
	cancel()
	time.Sleep(2 * moments.Lease)
	calls, cancel := context.WithTimeout(context.Background(), 2*moments.Lease)
	_, _ = e.own.Leader(calls)
	_, _ = e.own.Wait(calls)
	_, _ = e.own.WaitElected(calls)
	cancel()
	w.End()
	ended := time.Now()
	var err error
	select {
	case err = <-e.done:
	case <-time.After(5 * moments.Lease):
		w.Errorf("Run does not end")
		err = <-e.done
	}
	if took := time.Since(ended); took > 3*moments.Lease {
		w.Errorf("Run ended after %v", took)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && w.Faultless() {
		w.Errorf("Run: %v", err)
	}
	if row := w.Store.Rows()["m"]; err == nil && e.stopped != 0 && !row.Heartbeat.IsZero() && table.TokenAt(row.Token) == table.Token(e.stopped) {
		w.Errorf("Run has returned no error, but the lock is left to expire")
	}
	if e.leads.Load() != 0 {
		w.Errorf("the leader function still runs")
	}
}

// isKnown reports whether the machine knows who leads.
func (e *electors) isKnown() bool {
	leader, age, ok := e.own.Seen()
	return ok && age < leader.Lease
}

// probe checks that the machine is ready exactly while it leads.
func (e *electors) probe() error {
	for _, l := range []*spindle.Lock{e.own, e.rival} {
		before, ready, after := has(l)(), l.Leading(nil) == nil, has(l)()
		if before == after && ready != after {
			return fmt.Errorf("has the lock: %v, ready: %v", after, ready)
		}
	}
	return nil
}

// look takes a look at the deadline of the machine's term.
func (e *electors) look(w *moments.World) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if left := e.term.Left(); left > 0 {
		e.hears(e.term.Token(), w.Clock.Now().Time().Add(left))
	}
}

func (e *electors) hears(of spindle.Token, deadline time.Time) {
	if deadline.After(e.until[of]) {
		e.until[of] = deadline
	}
}

// observe returns an observer. Each loss is dated no later than the deadline, by a wall clock that was not set back.
func (e *electors) observe(w *moments.World) func(spindle.Event) {
	return func(ev spindle.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if ev.Kind == spindle.Elected {
			w.Terms.Add(1)
		}
		if !e.told.hears(ev) {
			w.Errorf("out of order: %v, token %d, %v", ev.Kind, ev.Token, ev.Err)
		}
		switch {
		case !ev.Deadline.IsZero():
			e.hears(ev.Token, ev.Deadline)
		case ev.Kind == spindle.Lost && errors.Is(ev.Err, spindle.ErrStopped):
			e.stopped = ev.Token
		case ev.Kind == spindle.Lost && !w.Happens("its wall clock is set back") && ev.At.Sub(e.until[ev.Token]) > moments.Lease/1000:
			w.Errorf("lost, %v after its deadline: %v", ev.At.Sub(e.until[ev.Token]), ev.Err)
		}
	}
}

// told is what the events have said so far.
type told struct {
	last, own, other  spindle.Token // of the last term of the machine, of its present one, and of the leader that it has seen
	jeopardy, leaving bool
}

// hears reports whether an event can follow those before it.
func (s *told) hears(ev spindle.Event) (ok bool) {
	own := ev.Token != 0 && ev.Token == s.own
	switch ev.Kind {
	case spindle.Elected:
		ok = s.own == 0 && s.other == 0 && ev.Token > s.last && !ev.Deadline.IsZero()
		*s = told{last: ev.Token, own: ev.Token}
	case spindle.Lost:
		ok = own && ev.Err != nil
		*s = told{last: s.last}
	case spindle.Jeopardy, spindle.Safe:
		ok = own && !ev.Deadline.IsZero() && s.jeopardy == (ev.Kind == spindle.Safe) && s.jeopardy == (ev.Err == nil)
		s.jeopardy = !s.jeopardy
	case spindle.Leaving:
		ok = !s.leaving && (own || ev.Token != 0 && ev.Token == s.other)
		s.leaving = true
	case spindle.LeaderSeen:
		ok = s.own == 0 && s.other == 0 && ev.Token != s.last
		s.other, s.leaving = ev.Token, false
	case spindle.LeaderGone:
		ok = s.other != 0 && ev.Token == s.other
		s.other, s.leaving = 0, false
	}
	return ok
}

// finish makes the leader function return. The lock is then given up at once, unless requests fail.
func (e *electors) finish(w *moments.World) {
	e.mu.Lock()
	e.returns = true
	e.mu.Unlock()
	_, token := e.own.HasLock()
	time.Sleep(moments.Lease / 20)
	if has, same := e.own.HasLock(); has && same == token && w.Only() {
		w.Errorf("the leader function has returned, but the lock is still held")
	}
}

// work returns a leader function that runs until its context ends, or until it is to return.
func (e *electors) work(w *moments.World) func(context.Context, spindle.Term) {
	return func(ctx context.Context, term spindle.Term) {
		if e.leads.Add(1) > 1 {
			w.Errorf("two leader functions of one elector run")
		}
		defer e.leads.Add(-1)
		e.mu.Lock()
		e.term, e.returns = term, false
		e.mu.Unlock()
		e.look(w)
		gone := time.Time{}
		for ctx.Err() == nil && !e.isToReturn() {
			if has(e.own)() {
				gone = time.Time{}
			} else if gone.IsZero() {
				gone = time.Now()
			} else if time.Since(gone) > moments.Lease {
				w.Errorf("the lock has been gone for a lease, and the leader's context has not ended")
				return
			}
			time.Sleep(moments.Lease / 100)
		}
	}
}

func (e *electors) isToReturn() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.returns
}

func (e *electors) join(w *moments.World) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if err := e.rival.Run(ctx, done); errors.Is(err, spindle.ErrRunning) {
		cancel()
		return
	}
	w.Others.Go(func() {
		<-w.Remains.Ctx.Done()
		cancel()
		<-done
	})
}

func electorsAfter(w *moments.World) {
	e := w.Values.(*electors)
	w.Until("the rival leads", 3*moments.Lease, has(e.rival))
	time.Sleep(moments.Lease)
	if !has(e.rival)() {
		w.Errorf("the rival does not keep the lock")
	}
	w.Remains.Ctx.End()
}
