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

	// ErrPassed is returned by Once.Do and Once.TryDo if a larger key is done than the given one. The given key is not
	// run any more, and whether it ever ran is not known: the text names both keys. If later work includes earlier
	// work, such as a report on everything there is, the key is as good as done.
	ErrPassed = table.ErrPassed
)

// Once does work once for each key, in the first process that calls: the tick of a schedule, or the version of a
// schema. Keys only grow, in the order of their bytes: once one is done, smaller ones are not run any more, and Do
// returns ErrPassed for them. Among waiting callers the smallest key goes first, but one that comes too late is passed.
// So a Once is not for work of which every key must run, such as the batches of an import. A name is for one schedule,
// or for keys that are no ticks.
//
// What was done last is a row beside the lock's, written in the commit that gives the lock back, and never pruned.
//
// It is a lock of its name, which excludes a Mutex and a spindle.Lock of that name. All methods may be called from any
// goroutine; the goroutines of one process queue, first come, first served.
type Once struct {
	mutex mutex
	edge  sync.Once // guards the warning about a call close to the end of a period
	moved sync.Once // guards the log line about another period
}

// NewOnce returns a Once on name, in a table made by ddl.Create. It makes no RPC. If an argument is wrong, Do and TryDo
// say so. The options are the same as for New.
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
	held  *held
}

// Key returns the key of this run: for a tick, its beginning in UTC, such as 2026-11-21T03:00:00Z.
func (r Run) Key() string { return r.key }

// Token returns the fencing token of this run.
func (r Run) Token() spindle.Token { return spindle.Token(r.token) }

// Left returns how long this run keeps the lock if no further heartbeat is acknowledged. It is not positive once the lock is
// lost.
func (r Run) Left() time.Duration {
	if r.held == nil {
		return 0
	}
	return r.held.remaining()
}

// Done returns mutations that record the key as done, and let their commit succeed only while this run has the lock:
// see spindle.IsFenced for the error. Add them to a serializable transaction of your own, in the lock's database: its
// writes then take effect exactly once for the key, whatever happens to this process before or after. The key stays
// done even if the function fails later.
//
// If the outcome of that commit is not known, return its error, and don't commit again: the next call finds out.
func (r Run) Done() []*spanner.Mutation { return r.done }

// Do runs fn unless the key is already done, and reports whether it ran: false without an error means that this very
// key is done. If another is doing the work of the same Once, for any key, Do waits. Then it returns false, or runs fn
// if the key is not done: the other had a smaller key, or failed, or was killed, which costs its lease. If a larger key
// is done, the error is ErrPassed. If ctx ends first, the error wraps ctx's and says who is doing the work.
//
// The context of fn is as in lock.Do: it ends when ctx does or the lock is lost. If fn returns nil, the key is done. If
// it returns an error or panics, the key is not done, and the next caller runs it. After each failure that they see,
// waiters pause, so that they don't run it back to back: at random, and longer each time, up to a tenth of the lease,
// or a second.
//
// If Do returns an error though fn returned nil, the next caller may run it again: either the lock was lost before,
// which is ErrNotHeld, or it is not known whether the key was recorded. So work that may not be done twice needs
// Run.Done. If fn did not run, an error other than ErrPassed says nothing about the key.
//
// With a ctx whose work, in a Do, holds a lock of this name, Do returns ErrHeld. It takes one RPC if the key is done,
// and five beside fn's if it runs: eight the first time.
func (o *Once) Do(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, false, fn)
}

// TryDo is Do without waiting: if another is doing the work, it returns ErrBusy.
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
	var record table.Due // what the commit that gives the lock back records as done
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

// forbids returns why a key must not run, or nil.
func (o *Once) forbids(last table.Done, wanted table.Due) error {
	if err := last.Forbids(wanted); err != nil {
		return o.mutex.contender.wrap("once", err)
	}
	return nil
}

// unlessDone returns err, or nil if err says that the key is done.
func unlessDone(err error) error {
	if errors.Is(err, table.ErrDone) {
		return nil
	}
	return err
}

func (o *Once) run(due table.Due, t *turn) Run {
	c, token := &o.mutex.contender, t.term.Token()
	return Run{due.Key, token, c.spanner.Mutations(table.Record(o.name(), token, due, c.config.ID)), t.held}
}

func (o *Once) name() string { return o.mutex.names[0] }

// wanted returns what is to be done.
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

// inform logs once that a schedule has another period.
func (o *Once) inform(last table.Done, wanted table.Due) {
	if last.OtherPeriod(wanted) {
		o.moved.Do(func() {
			o.log().Info("what was done last had another period: it counts for times until it was recorded, and not for later ones",
				"done", last.Key, "at", last.At, "was", last.Period, "period", wanted.Period)
		})
	}
}

// warn logs once that calls come close to a change of key: another call for the same time may have another key.
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

// last reads what was done last. It retries, unless waiting can't fix the error, or try is set.
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

// unlessForbidden chooses the lock if it is free, unless the key must not run any more. Each look reads what was done,
// so all who wait for a key leave as soon as it is done.
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
