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
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrBusy is returned by Once.TryDo if another process or goroutine is doing the work or is ahead in the queue. The
	// error message says what is in the way.
	ErrBusy = errors.New("the work is already in progress")

	// ErrPassed is returned by Once.Do and Once.TryDo if a larger key than the given one has already been done. The
	// given key will not run any more. It is not known whether it ever ran. The error message contains both keys. If
	// later work includes earlier work, as in a report on all data so far, the caller can treat ErrPassed as success.
	ErrPassed = table.ErrPassed
)

// Once does work once for each key, in one of the processes that call Do with this key. A key is, for example, a
// scheduled time or the version of a schema.
//
// Keys are done in increasing order, compared by their bytes. After a key has been done, smaller keys no longer run,
// and Do returns ErrPassed for them. Among waiting processes, the one with the smallest key goes first, but a caller
// that comes too late finds that its key has been passed. Do not use a Once if every key must run, for example if the
// keys are the batches of an import. Under one name, use the times of a single schedule, or only keys that are not
// times.
//
// The last key that was done is recorded in a row of its own. The row is written in the commit that releases the lock,
// or in a commit of your own (see Run.Done). It is never pruned.
//
// A Once is a lock on its name, and excludes a Mutex and a spindle.Lock with that name. But give it a name of its own:
// to waiting callers, a Mutex that was unlocked looks like a run that failed, so they pause (see Do) and may be
// overtaken.
//
// All methods can be called from any goroutine. The goroutines of a process queue in order of arrival.
type Once struct {
	mutex mutex
	edge  sync.Once // guards the warning about calls close to the end of a period
	moved sync.Once // guards the log line about a changed period
}

// NewOnce returns a Once with the given name, in a table made by ddl.Create. It makes no RPC. If an argument is
// invalid, Do and TryDo return an error that describes the mistake.
func NewOnce(db *spanner.Client, table, name string, opts ...Option) *Once {
	return &Once{mutex: newMutex(newContender(db, table, fmt.Sprintf("once %.64q", name), []string{name}, opts, nil), name)}
}

// Err returns an error that describes what is wrong with the arguments of NewOnce, or nil. It makes no RPC.
func (o *Once) Err() error { return o.mutex.contender.err }

// Run is one run of a Once's work.
type Run struct {
	key  string
	done []*spanner.Mutation
	held *held
}

// Key returns the key of this run. For a schedule, this is the time in UTC at which the tick begins or the work is due,
// such as 2026-11-21T03:00:00Z.
func (r Run) Key() string { return r.key }

// Token returns the fencing token of this run.
func (r Run) Token() spindle.Token {
	if r.held == nil {
		return 0
	}
	return spindle.Token(r.held.term.Token())
}

// Left returns how long this run keeps the lock if no further heartbeat is acknowledged. The result is zero or negative
// once the lock is lost.
func (r Run) Left() time.Duration {
	if r.held == nil {
		return 0
	}
	return r.held.remaining()
}

// Done returns mutations that record the key as done. Their commit succeeds only while this run holds the lock. See
// spindle.IsFenced for the error.
//
// Add the mutations to a serializable transaction of your own in the lock's database. The writes of that transaction
// then take effect exactly once for the key, even if this process crashes before or after the commit. The key stays
// done even if the function fails later. If the outcome of the commit is unknown, return the commit's error and do not
// commit again. The next call of Do finds out whether the key is done.
func (r Run) Done() []*spanner.Mutation { return r.done }

// Do runs fn unless the key has already been done, and reports whether fn ran. If Do returns false and no error, this
// exact key is done. If a larger key is done, the error is ErrPassed.
//
// If another process or goroutine is doing work of the same Once, for any key, Do waits for it to finish. If the other
// process was killed, Do waits until that process's lease has expired. After the wait, Do runs fn unless this key or a
// larger one has been done in the meantime. If ctx ends first, the error wraps ctx.Err() and, if it is known, says
// which process is doing the work. Do then tries to give up its place in the queue before it returns, as Mutex.Lock
// does.
//
// As in lock.Do, the context of fn ends when ctx ends or the lock is lost. If fn returns nil, Do records the key as
// done. If fn returns an error or panics, the next caller runs the key, unless fn itself has recorded it as done (see
// Run.Done). Waiting callers pause after each failure that they see, so that they do not run failing work back to back.
// The pauses are random and grow with each failure, up to a tenth of the lease, or a second if that is shorter.
//
// If fn returned nil but Do returns an error, the next caller might run the key again. Either the error is ErrNotHeld
// because the lock was lost before the key was recorded, or Do could not find out whether the key was recorded. If the
// work must not be done twice, use Run.Done. If fn did not run, an error other than ErrPassed does not say whether the
// key is done.
//
// Inside a Do that holds a lock with this name, Once.Do returns ErrHeld. Once.Do takes one RPC if the key is done. If
// fn runs, Once.Do takes five RPCs, or eight for the first key of a new name. This does not count heartbeats or the
// RPCs that fn makes.
func (o *Once) Do(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, false, fn)
}

// TryDo is like Do, but it does not wait. If another process or goroutine is doing the work, it returns ErrBusy.
func (o *Once) TryDo(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, true, fn)
}

func (o *Once) do(ctx context.Context, key Key, try bool, fn func(context.Context, Run) error) (ran bool, err error) {
	c := o.mutex.contender
	pause := loop.Pause{Clock: c.config.Clock}
	if !try {
		pause.Longest = loop.LongestPause(c.config.Lease)
	}
	patience := c.patience()
	wanted, err := o.wanted(ctx, key, try, patience, &pause)
	if err != nil {
		return false, unlessDone(err)
	}
	w := c.waiter(try, o.mutex.garbage, o.name())
	w.Once, w.Ticket.Key, w.patience = o.name(), wanted.Key, patience
	w.choose = w.unlessForbidden(wanted, &pause)
	own, err := o.mutex.lock(ctx, w)
	switch {
	case err != nil:
		return false, unlessDone(err)
	case own == nil:
		by := w.by()
		if f := w.found.Load(); f != nil && f.last != nil { // the lock's rows can't be read
			by = fmt.Sprintf(" (%v)", f.last)
		}
		return false, c.wrap("once", fmt.Errorf("%w: key %q%s", ErrBusy, wanted.Key, by))
	}
	err = own.do(ctx, func(ctx context.Context) error {
		// The last holder could record the key until its lease row was deleted.
		last, _, err := o.last(ctx, table.Strong, try, patience)
		if err == nil {
			err = o.forbids(last, wanted)
		}
		if err != nil || own.token() == 0 { // lost since the read, so that another process may have begun
			return err
		}
		ran = true
		err = own.watched(func(ctx context.Context) error { return fn(ctx, o.run(wanted, own.held)) })(ctx)
		if err == nil {
			own.record = wanted
		}
		return err
	})
	switch {
	case !ran && err == nil: // the deadline had passed, but a late answer then moved it, or the clock was set back
		return false, c.wrap("once", fmt.Errorf("%w: %w", ErrLost, elect.ErrExpired))
	case !ran:
		return false, unlessDone(err)
	case own.record.Key != "" && err != nil && own.term.Recorded(context.WithoutCancel(ctx), wanted.Key):
		return true, nil // recorded by fn itself, or by a commit whose reply was lost
	}
	return true, err
}

// forbids returns the reason why a key must not run, or nil.
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

func (o *Once) run(due table.Due, h *held) Run {
	return Run{due.Key, h.spanner.Mutations(table.Record(o.name(), h.term.Token(), due, h.config.ID)), h}
}

func (o *Once) name() string { return o.mutex.names[0] }

// wanted returns the key to be done, or an error if it must not run.
func (o *Once) wanted(ctx context.Context, key Key, try bool, patience *elect.Patience, pause *loop.Pause) (table.Due, error) {
	if err := o.mutex.ready(ctx); err != nil {
		return table.Due{}, err
	}
	if key.schedule == nil {
		key = KeyOf("")
	}
	if key.err != nil {
		return table.Due{}, o.mutex.contender.wrap("once", key.err)
	}
	last, now, err := o.last(ctx, table.Present, try, patience)
	if err != nil {
		return table.Due{}, err
	}
	pause.Asked(last, now)
	wanted := o.due(key.schedule, now.Local())
	o.inform(last, wanted)
	return wanted, o.forbids(last, wanted)
}

// inform logs, once, that the period of a schedule has changed.
func (o *Once) inform(last table.Done, wanted table.Due) {
	if last.OtherPeriod(wanted) {
		o.moved.Do(func() {
			o.log().Info("the period of the schedule has changed; a tick counts as passed only if it began before the last completed tick, and also before that tick was recorded; all later ticks run as usual",
				"done", last.Key, "at", last.At, "was", last.Period, "period", wanted.Period)
		})
	}
}

// due returns the key that is due now. If a call at this time may get the wrong key, it logs a warning once.
func (o *Once) due(s table.Schedule, now time.Time) table.Due {
	due, risk := s.Due(now)
	if risk != "" {
		o.edge.Do(func() {
			o.log().Warn(risk+"; pass the line and the time zone of your timers to lock.Cron, or their offset to lock.Every if they follow UTC", "key", due.Key)
		})
	}
	return due
}

func (o *Once) log() *slog.Logger {
	c := o.mutex.contender
	return c.config.Log.With("table", c.about.Table, "lock", o.name(), "id", c.config.ID)
}

// last returns the key that was done last. It repeats a failed read, unless try is set or waiting does not help.
func (o *Once) last(ctx context.Context, bound table.Bound, try bool, patience *elect.Patience) (last table.Done, now time.Time, err error) {
	c := o.mutex.contender
	w := c.about.Watch()
	defer w.Close()
	err = c.persist(ctx, patience, try, func(ctx context.Context) (err error) {
		last, now, err = w.Table(c.table).Done(ctx, bound, o.name())
		return err
	})
	switch {
	case err == nil:
		return last, now, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("%w (last error: %w)", table.Ended(ctx), err)
	}
	return last, now, c.wrap("once", fmt.Errorf("reading which key was done last: %w", err))
}

// unlessForbidden returns a function that selects the lock when it is free, unless the key must no longer run. Each
// poll also reads which key was done last, so that a waiting caller returns at its next poll after its key is done.
func (w *waiter) unlessForbidden(wanted table.Due, pause *loop.Pause) elect.Choose {
	forbids := func(last table.Done, _ time.Time) error { return last.Forbids(wanted) }
	choose := pause.Choose(w.Done, forbids)
	return func(seen []elect.LockView) elect.Decision {
		last, at, err := w.Done()
		if err == nil {
			err = forbids(last, at)
		}
		if err != nil {
			return elect.Decision{Err: err}
		}
		return choose(seen)
	}
}
