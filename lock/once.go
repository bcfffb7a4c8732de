package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/repeat"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

var (
	// ErrBusy is returned by Once.TryDo if another is doing the work now: its text says who.
	ErrBusy = errors.New("another is doing it")

	// ErrPassed is returned by Once.Do and Once.TryDo if a larger key is done than the one that they were given. This
	// one is not run any more, and whether it ever ran is not known: the text names both keys. For work of which later
	// includes earlier, such as a report of all that is there, it is as good as done.
	ErrPassed = table.ErrPassed
)

// Once does work once for each key, in whichever process asks first: the tick of a schedule, or the version of a schema.
// Keys only grow, in the order of their bytes: once one is done, the smaller ones are not run any more, and to ask for one
// of them is ErrPassed. Of callers that wait the smallest key goes first, but one that comes too late is passed. So a Once is
// not for work of which every key has to be run, such as the batches of an import; and a name is for one schedule, or for keys
// that are no ticks.
//
// What was done last is a row beside the lock's, written in the commit that gives the lock back, and never pruned.
//
// It is a lock of its name, which excludes a Mutex and a spindle.Lock of that name. All methods may be called from any
// goroutine; those of one process queue, first come, first served.
type Once struct {
	mutex mutex
	edge  sync.Once // of the warning of a call that is close to the end of a period
	moved sync.Once // of the news of another period
}

// NewOnce returns a Once on name, in a table that ddl.Create makes. It makes no RPC. If an argument is wrong, Do and
// TryDo say so. The options are those of New.
func NewOnce(db *spanner.Client, table, name string, opts ...spindle.Option) *Once {
	return &Once{mutex: mutex{contender: newContender(db, table, fmt.Sprintf("once %.64q", name), []string{name}, opts, nil), names: []string{name}}}
}

// Err returns what is wrong with the arguments of NewOnce, or nil. It makes no RPC.
func (o *Once) Err() error { return o.mutex.contender.err }

// Run is one run of the work of a Once.
type Run struct {
	key   string
	token table.Token
	done  []*spanner.Mutation
}

// Key is the key of this run: of a tick, its beginning in UTC, such as 2026-11-21T03:00:00Z.
func (r Run) Key() string { return r.key }

// Token is the fencing token of this run.
func (r Run) Token() spindle.Token { return spindle.Token(r.token) }

// Done returns mutations that record the key as done, and let their commit succeed only while this run has the lock: see
// spindle.IsFenced for the error. Add them to a serializable transaction of your own, in the lock's database, and what
// it writes takes effect exactly once for the key, whatever happens to this process before or after. The key stays done
// even if the function fails later.
//
// If the outcome of that commit is not known, return its error, and don't commit again: the next call finds out.
func (r Run) Done() []*spanner.Mutation { return r.done }

// Do runs fn unless the key is done already, and reports whether it ran: false without an error says that this very key
// is done. It waits while another is doing the work of the same Once, for whatever key. When that one has finished, Do
// returns false, or runs fn if the key is not done: the other had a smaller key, or failed, or was killed, which costs its
// lease. If a larger key was done meanwhile, or before, the error is ErrPassed. If ctx ends first, the error wraps ctx's
// and says who is doing it.
//
// The context of fn is that of lock.Do: it ends when ctx does or the lock is lost. If fn returns nil, the key is done.
// If it returns an error or panics, the key is not done, and the next caller runs it. Those who wait let a pause go by
// after each failure that they see, so that they don't run it back to back: at random, and longer each time, up to a tenth
// of the lease, or a second. If Do returns an error though fn
// returned nil, the next caller may run it again: the lock was lost before, which is ErrNotHeld, or it is not known
// whether the key was recorded. So work that may not be done twice needs Run.Done. If fn did not run, an error other than
// ErrPassed says nothing about the key.
//
// With a ctx of the work of a Do that holds a lock of this name, it is ErrHeld. It takes one RPC if the key is done, and
// five beside those of fn if it runs: eight the first time.
func (o *Once) Do(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, false, fn)
}

// TryDo is Do for those who do not wait: if another is doing the work, it returns ErrBusy.
func (o *Once) TryDo(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, true, fn)
}

func (o *Once) do(ctx context.Context, key Key, try bool, fn func(context.Context, Run) error) (ran bool, err error) {
	pause := repeat.Pause{Clock: o.mutex.contender.config.Clock}
	if !try {
		pause.Longest = repeat.Longest(o.mutex.contender.config.Lease)
	}
	wanted, err := o.wanted(ctx, key, try, &pause)
	if err != nil {
		return false, unlessDone(err)
	}
	w := &waiting{ticket: table.Ticket{Key: wanted.Key}, beside: []string{table.DoneRow(o.name())}}
	t, err := o.mutex.lock(ctx, unlessForbidden(wanted, &pause, w), try, w)
	switch {
	case err != nil:
		return false, unlessDone(err)
	case t == nil:
		by := holders(w.seen)
		if w.last != nil { // it can't be read
			by = fmt.Sprintf(" (%v)", w.last)
		} else if w.seen == nil {
			by = o.mutex.inProcess()
		} else if by == "" {
			by = w.place()
		}
		return false, o.mutex.contender.wrap("once", fmt.Errorf("%w: key %q%s", ErrBusy, wanted.Key, by))
	}
	var record table.Due // what the commit that gives the lock back is to record as done
	own := &work{held: t.held, unlock: func(ctx context.Context) error { return o.mutex.unlock(ctx, t, record) }}
	err = own.do(ctx, func(ctx context.Context) error {
		// The last holder may have recorded it until its lease row was gone.
		last, _, err := o.last(ctx, table.Strong, try)
		if err == nil {
			err = o.forbids(last, wanted)
		}
		if err != nil || t.token() == 0 { // lost since it was read: another may have begun
			return err
		}
		ran = true
		if err = fn(ctx, o.run(wanted, t)); err == nil {
			record = wanted
		}
		return err
	})
	switch {
	case !ran:
		return false, unlessDone(err)
	case record.Key != "" && err != nil && t.term.Recorded(context.WithoutCancel(ctx), wanted.Key):
		return true, nil // by fn itself, or the reply was lost
	}
	return true, err
}

// forbids is why a key is not to be run.
func (o *Once) forbids(last table.Done, wanted table.Due) error {
	if err := last.Forbids(wanted); err != nil {
		return o.mutex.contender.wrap("once", err)
	}
	return nil
}

// unlessDone is err, but for the news that the key is done, which is no error.
func unlessDone(err error) error {
	if errors.Is(err, table.ErrDone) {
		return nil
	}
	return err
}

func (o *Once) run(due table.Due, t *turn) Run {
	c, token := &o.mutex.contender, t.term.Token()
	return Run{due.Key, token, c.spanner.Mutations(table.Record(o.name(), token, due, c.config.ID))}
}

func (o *Once) name() string { return o.mutex.names[0] }

// wanted is what is to be done.
func (o *Once) wanted(ctx context.Context, key Key, try bool, pause *repeat.Pause) (table.Due, error) {
	if err := o.mutex.ready(ctx); err != nil {
		return table.Due{}, err
	}
	if err := key.check(); err != nil {
		return table.Due{}, o.mutex.contender.wrap("once", err)
	}
	last, now, err := o.last(ctx, table.Present, try)
	if err != nil {
		return table.Due{}, err
	}
	pause.Asked(last, now)
	wanted := key.due(now)
	o.warn(key.tick, now)
	o.inform(last, wanted)
	return wanted, o.forbids(last, wanted)
}

// inform says once that a schedule has another period.
func (o *Once) inform(last table.Done, wanted table.Due) {
	if last.OtherPeriod(wanted) {
		o.moved.Do(func() {
			o.log().Info("what was done last had another period: it counts for times until it was recorded, and not for later ones",
				"done", last.Key, "at", last.At, "was", last.Period, "period", wanted.Period)
		})
	}
}

// warn warns once of calls for a time whose key is decided by little: a call for the same time may have another key.
func (o *Once) warn(t table.Tick, now time.Time) {
	if offset, near := t.BetterOffset(now); near && t.Nearest {
		o.edge.Do(func() {
			o.log().Warn("a period ends at about this time: if another machine calls a little earlier or later for the same time of the schedule, that runs twice, or not at all. Give lock.Every this offset",
				"period", t.Period, "offset", offset)
		})
	}
}

func (o *Once) log() *slog.Logger {
	c := &o.mutex.contender
	return c.config.Log.With("table", c.about.Table, "lock", o.name(), "id", c.config.ID)
}

// last reads what was done last. What fails is tried again unless waiting can't fix it, or try is set.
func (o *Once) last(ctx context.Context, bound table.Bound, try bool) (table.Done, time.Time, error) {
	c := &o.mutex.contender
	w := c.about.Watch()
	defer w.Close()
	retry := elect.Backoff{Max: c.config.Lease / 10}
	for {
		last, now, err := o.look(ctx, bound, w)
		switch {
		case err == nil:
			return last, now, nil
		case ctx.Err() != nil:
			return last, now, c.wrap("once", fmt.Errorf("what was done last: %w (last: %w)", ended(ctx), err))
		case try || permanent(err):
			return last, now, c.wrap("once", fmt.Errorf("what was done last: %w", err))
		}
		elect.Sleep(ctx, c.config.Clock, retry.Pause(c.config.Clock))
	}
}

func (o *Once) look(ctx context.Context, bound table.Bound, w *telemetry.Watch) (table.Done, time.Time, error) {
	c := &o.mutex.contender
	ctx, cancel := context.WithTimeout(ctx, elect.Attempt(c.config.Lease))
	defer cancel()
	return w.Table(c.table).Done(ctx, bound, o.name())
}

// unlessForbidden chooses the lock if it is free, unless the key is not to be run any more: each look reads what was done, so
// that all who wait for a key leave as soon as it is.
func unlessForbidden(wanted table.Due, pause *repeat.Pause, w *waiting) elect.Choose {
	forbids := func(last table.Done, _ time.Time) error { return last.Forbids(wanted) }
	choose := pause.Choose(func() (table.Done, time.Time, error) { return w.line.done() }, forbids)
	return func(seen []elect.LockView) elect.Decision {
		last, at, err := w.line.done()
		if err == nil {
			err = forbids(last, at)
		}
		if err != nil {
			return elect.Blocked(err)
		}
		return choose(seen)
	}
}
