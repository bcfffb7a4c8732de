package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// ErrBusy is returned by Once.TryDo if another is doing the work now: its text says who.
var ErrBusy = errors.New("another is doing it")

// errDone ends a competition for what was done in the meantime.
var errDone = errors.New("it was done already")

// Once does work once for each key, in whichever process asks first: the tick of a schedule, the version of a schema,
// the number of a batch. Keys only grow: once one is done, so are all that come before it, in the order of their bytes.
// So a name is for one schedule, or for keys that are no ticks. What was done last is a row beside the lock's, written in
// the commit that gives the lock back, and never pruned.
//
// It is a lock of its name, which excludes a Mutex and a spindle.Lock of that name. All methods may be called from any
// goroutine; those of one process queue, first come, first served.
type Once struct{ mutex mutex }

// NewOnce returns a Once on name, in a table that ddl.Create makes. It makes no RPC. If an argument is wrong, Do and
// TryDo say so. The options are those of New.
func NewOnce(db *spanner.Client, table, name string, opts ...spindle.Option) *Once {
	return &Once{mutex{contender: newContender(db, table, fmt.Sprintf("once %.64q", name), []string{name}, opts, nil), names: []string{name}}}
}

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

// Do runs fn unless the key is done already, and reports whether it ran. It waits while another is doing the work of
// the same Once, for whatever key. When that one has finished, Do returns false, or runs fn if the key is not done: the
// other had another key, or failed, or was killed, which costs its lease. If ctx ends first, the error wraps ctx's and
// says who is doing it.
//
// The context of fn is that of lock.Do: it ends when ctx does or the lock is lost. If fn returns nil, the key is done.
// If it returns an error or panics, the key is not done, and the next caller runs it. If Do returns an error though fn
// returned nil, the next caller may run it again: the lock was lost before, which is ErrNotHeld, or it is not known
// whether the key was recorded. So work that may not be done twice needs Run.Done. If fn did not run, the error says
// nothing about the key.
//
// With a ctx of the work of a Do that holds a lock of this name, it is ErrHeld. It takes one RPC if the key is done, and
// nine beside those of fn if it runs.
func (o *Once) Do(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, false, fn)
}

// TryDo is Do for those who do not wait: if another is doing the work, it returns ErrBusy.
func (o *Once) TryDo(ctx context.Context, key Key, fn func(ctx context.Context, run Run) error) (ran bool, err error) {
	return o.do(ctx, key, true, fn)
}

func (o *Once) do(ctx context.Context, key Key, try bool, fn func(context.Context, Run) error) (ran bool, err error) {
	wanted, err := o.wanted(ctx, key, try)
	if wanted == "" || err != nil {
		return false, err
	}
	w := &waiting{}
	t, err := o.mutex.lock(ctx, o.unlessDone(ctx, wanted, w), try, w)
	switch {
	case errors.Is(err, errDone):
		return false, nil
	case err != nil:
		return false, err
	case t == nil:
		by := holders(w.seen)
		if w.seen == nil {
			by = o.mutex.inProcess()
		}
		return false, o.mutex.contender.wrap("once", fmt.Errorf("%w: key %q%s", ErrBusy, wanted, by))
	}
	late, record := false, "" // what the commit that gives the lock back is to record as done
	own := &work{held: t.held, unlock: func(ctx context.Context) error { return o.mutex.unlock(ctx, t, record) }}
	err = own.do(ctx, func(ctx context.Context) error {
		// The last holder may have recorded it until its lease row was gone.
		last, _, err := o.last(ctx, table.Strong, try)
		if err == nil {
			late, err = last.Covers(wanted)
		}
		if late || err != nil || t.token() == 0 { // lost since it was read: another may have begun
			return err
		}
		ran = true
		if err = fn(ctx, o.run(wanted, t)); err == nil {
			record = wanted
		}
		return err
	})
	if late || record != "" && err != nil && t.term.Recorded(context.WithoutCancel(ctx), wanted) {
		return ran, nil // by another, or by fn itself
	}
	return ran, err
}

func (o *Once) run(key string, t *turn) Run {
	c, token := &o.mutex.contender, t.term.Token()
	return Run{key, token, c.spanner.Mutations(table.Record(o.name(), token, key, c.config.ID))}
}

func (o *Once) name() string { return o.mutex.names[0] }

// wanted is the key that is to be done, or "" if it was done already.
func (o *Once) wanted(ctx context.Context, key Key, try bool) (string, error) {
	if err := o.mutex.ready(ctx); err != nil {
		return "", err
	}
	if err := key.check(); err != nil {
		return "", o.mutex.contender.wrap("once", err)
	}
	last, now, err := o.last(ctx, table.Present, try)
	if err != nil {
		return "", err
	}
	wanted := key.at(now)
	done, err := last.Covers(wanted)
	switch {
	case err != nil:
		return "", o.mutex.contender.wrap("once", err)
	case done:
		return "", nil
	}
	return wanted, nil
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

// unlessDone chooses the lock if it is free, unless the work was done by then.
func (o *Once) unlessDone(ctx context.Context, wanted string, w *waiting) elect.Choose {
	return func(seen []elect.Sight) ([]elect.Sight, time.Duration, error) {
		claim, wait, err := elect.All(seen)
		if claim == nil {
			return nil, wait, err
		}
		last, _, err := o.look(ctx, table.Present, w.watch)
		if err != nil {
			return nil, 0, err
		}
		done, err := last.Covers(wanted)
		if done {
			err = errDone
		}
		return claim, 0, err
	}
}
