package lock

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// An Option changes one setting of a lock. The options are those of package spindle that return a LockOption or a
// CommonOption.
type Option = spindle.LockOption

// Mutex is a lock on one name. While it is held, it is renewed in the background. All methods can be called from any
// goroutine. The goroutines of a process queue for the name in order of arrival, even if they use different Mutex
// values.
type Mutex struct{ mutex }

// New returns a Mutex on name, in a table made by ddl.Create. It makes no RPC. If an argument is invalid, Lock and
// TryLock return an error that describes the mistake.
func New(db *spanner.Client, table, name string, opts ...Option) *Mutex {
	c := newContender(db, table, fmt.Sprintf("mutex %.64q", name), []string{name}, opts, nil)
	m := &Mutex{newMutex(c, name)}
	runtime.AddCleanup(m, forget, m.garbage)
	return m
}

// Fence returns a mutation that changes nothing, but makes a commit fail unless the mutex is still held under its
// current token. See spindle.Lock.Fence, and spindle.IsFenced for the error. If the mutex is not held when Fence is
// called, the commit always fails.
//
// Fence can also make a write under a different lock depend on this mutex. To do so, add the mutation to those that you
// pass to the other lock's Apply. If the other lock's token is not valid, the error is ErrFenced. If only this mutex's
// token is not valid, the error is not ErrFenced, but IsFenced recognizes it.
func (m *Mutex) Fence() *spanner.Mutation {
	return m.contender.fence(m.Token(), m.names...).Mutations()[0]
}

// FenceStatement is like spindle.Lock.FenceStatement, with the mutex's current token. If the mutex is not held, the
// statement updates no row.
func (m *Mutex) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return m.contender.fence(m.Token(), m.names...).Statement(dialect)
}

// mutex is one name, or several names that are held together.
//
// Nothing that outlives a call may point to a mutex, or forgotten.go could not tell that the program has dropped it.
type mutex struct {
	contender *contender
	names     []string
	now       atomic.Pointer[turn] // nil if not locked
	garbage   *atomic.Bool         // see forgotten.go
}

func newMutex(c contender, names ...string) mutex {
	return mutex{contender: &c, names: names, garbage: new(atomic.Bool)}
}

// turn is one period of holding the locks. Until it ends, it keeps its place at the front of the process's queue.
type turn struct {
	*held
	queue *queue
	line  *line
}

// Lock blocks until the lock is held or ctx ends. If ctx ends first, the error wraps ctx.Err() and says which process
// holds the lock. Lock then returns within a tenth of the lease or 500 ms, whichever is shorter: it first deletes its
// place in the queue, so that nobody waits for it if the program exits.
//
// Lock waits out outages of Spanner. Errors that waiting can't fix are returned immediately. If Spanner refuses a
// request because a permission, the table or credentials are missing, Lock tries again: it returns the error if such
// requests have been refused for one lease, or for 10 s if that is longer. Only if the table or a permission is missing
// when Lock begins, the error is returned immediately.
//
// Lock queues behind the other goroutines of this process, including one that has locked this value. A goroutine that
// has acquired the lock keeps the other goroutines waiting until it calls Unlock or returns from Do, even if it loses
// the lock. It might still be at work, and two goroutines of one process must not unexpectedly work at the same time.
// Other processes do not wait for it. If a lost lock has not been unlocked, Lock's error and a warning in the log say
// so.
//
// A value that is dropped without Unlock keeps the lock until the process ends, because the program may rely on that. Once
// it has been collected as garbage, a warning in the log names the line that locked it. If an operator then releases
// the lock, the process can acquire it again. Do never forgets to unlock.
//
// If Lock is called inside a Do that holds the lock, it returns ErrHeld, because it would wait for itself. See Do.
func (m *mutex) Lock(ctx context.Context) error {
	_, err := m.lock(ctx, elect.All, false, new(waiting))
	return err
}

// TryLock acquires the lock if it is free, and reports whether it did. It does not wait, neither for goroutines of this
// process nor for other processes. Inside a Do that holds the lock, it returns ErrHeld, as Lock does.
func (m *mutex) TryLock(ctx context.Context) (bool, error) {
	t, err := m.lock(ctx, elect.All, true, new(waiting))
	return t != nil, err
}

// lock acquires the lock when choose selects it, and fills in w. If try is set, it returns nil instead of waiting.
func (m *mutex) lock(ctx context.Context, choose elect.Choose, try bool, w *waiting) (*turn, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	clock := m.contender.config.Clock
	start := clock.Now()
	w.watch = m.contender.about.Watch()
	defer w.watch.Close()
	if h, _ := inTurn(m.contender.queue()); h != nil {
		h.wanted()
	}
	var q *queue
	if try {
		q = tryEnter(m.contender.queue())
	} else {
		q = enter(ctx, m.contender.queue())
	}
	switch {
	case q == nil && try:
		return nil, nil
	case q == nil:
		return nil, m.contender.wrap("lock", fmt.Errorf("not acquired in %v: %w%s", clock.Now().Since(start).Round(time.Millisecond), ended(ctx), m.inProcess()))
	}
	return m.hold(ctx, q, choose, try, w)
}

func (m *mutex) ready(ctx context.Context) error {
	switch {
	case m.contender.err != nil:
		return m.contender.err
	case ctx.Err() != nil:
		return m.contender.wrap("lock", fmt.Errorf("ctx had already ended: %w", ended(ctx)))
	}
	if own, by := m.contender.ownIn(ctx, m.names); own != nil {
		return m.contender.wrap("lock", fmt.Errorf("%w: %.64q, by Do of %s", ErrHeld, own[0], by))
	}
	for w := working(ctx); w != nil; w = w.within {
		if w.queue() == m.contender.queue() && !w.left.Load() {
			return m.contender.wrap("lock", fmt.Errorf("%w: the lock was lost, but the goroutines of this process can acquire it again only after Do has returned", ErrHeld))
		}
	}
	return nil
}

// inProcess describes, for an error, which goroutine of this process is in the way.
func (m *mutex) inProcess() string {
	if t := m.now.Load(); t != nil {
		return fmt.Sprintf(" (%s by this same value under token %v; unlock it first; %s)", t.how(), t.term.Token(), t.origin.text())
	}
	switch h, _ := inTurn(m.contender.queue()); {
	case h == nil:
		return " (another goroutine of this process is ahead of this one in the queue)"
	case h.garbage.Load():
		return fmt.Sprintf(" (%s by a value in this process under token %v that was never unlocked and is garbage now; release the lock with spindle release, or restart the process; %s)", h.how(), h.term.Token(), h.origin.text())
	default:
		return fmt.Sprintf(" (%s by another value in this process under token %v; unlock that value first, or return from its Do; %s)", h.how(), h.term.Token(), h.origin.text())
	}
}

func (m *mutex) hold(ctx context.Context, q *queue, choose elect.Choose, try bool, w *waiting) (*turn, error) {
	w.queue = q
	m.contender.stand(w, q.ticket, m.names...)
	c := m.contender.candidate(w.line, m.names...)
	w.since = c.Clock.Now()
	term, err := m.contender.acquire(ctx, &c, inOrder(w.line, choose), try, w)
	if term == nil {
		w.line.handOn(q, w.last != nil || table.Refused(err))
		q.done()
		if err != nil {
			err = m.contender.wrap("lock", err)
		}
		return nil, err
	}
	q.ticket = table.Ticket{} // the claim has deleted it
	t := &turn{m.contender.keep(term, w.watch, m.garbage, q.done), q, w.line}
	q.holds.Store(t.held)
	m.now.Store(t)
	return t, nil
}

// Unlock releases the lock in one RPC, and lets the next goroutine of this process acquire it. It blocks until that is
// done or ctx ends, in which case the lock is left to expire. If ctx has already ended when Unlock is called, as in a
// deferred Unlock during a shutdown, Unlock takes at most three seconds instead.
//
// After an error there is nothing to do: this value counts as unlocked, and can be locked again.
//
// Unlock returns ErrNotHeld if the lock was lost or never held. After a loss, another process may have held the lock,
// so the work done under it may have to be undone or repeated.
//
// Unlock unlocks this value, no matter which goroutine locked it. If goroutines share a value, a second Unlock by one
// goroutine can release the lock that another one has acquired since. If that other goroutine is in Do, the context of
// its function is then canceled. Do itself releases only the lock that it acquired.
func (m *mutex) Unlock(ctx context.Context) error { return m.unlock(ctx, m.now.Load(), table.Due{}) }

// take implements Locker.
func (m *mutex) take(ctx context.Context, try bool) (*work, error) {
	t, err := m.lock(ctx, elect.All, try, new(waiting))
	if t == nil {
		return nil, err
	}
	return &work{held: t.held, unlock: func(ctx context.Context) error { return m.unlock(ctx, t, table.Due{}) }}, nil
}

// unlock ends a turn, and records done if it has a key.
func (m *mutex) unlock(ctx context.Context, t *turn, done table.Due) error {
	if t == nil || !t.leave() {
		return m.contender.wrap("unlock", ErrNotHeld)
	}
	var again []table.Write
	if t.queue.isWanted() {
		again = t.line.goToTheEnd(t.queue)
	}
	err := t.giveBack(ctx, done, again...)
	m.now.Store(nil)
	t.queue.done()
	if err != nil {
		return m.contender.wrap("unlock", err)
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Lost returns a channel that is closed as soon as the lock is lost, because its lease ran out or another process
// claimed it. Unlock does not close the channel. If the lock is not held, the channel is already closed.
//
// After a loss, call Unlock on this value too, once the work has stopped. Until then, other goroutines of this process
// have to wait for the lock, even if they use other values with the same name. Other processes do not have to wait.
func (m *mutex) Lost() <-chan struct{} {
	if t := m.now.Load(); t != nil {
		return t.lost
	}
	return closed
}

// Token returns the fencing token under which the lock is held. It returns zero if the lock is not held or its deadline
// has passed. It makes no RPC.
func (m *mutex) Token() spindle.Token {
	if t := m.now.Load(); t != nil {
		return t.token()
	}
	return 0
}

// Left returns how long the lock stays held if no further heartbeat is acknowledged. The result is zero or negative if
// the lock is not held. Left makes no RPC.
func (m *mutex) Left() time.Duration {
	if t := m.now.Load(); t != nil {
		return t.remaining()
	}
	return 0
}

// Apply is like spindle.Lock.Apply, with the lock's current token. Inside a Do of this value, it uses the token that Do
// acquired, even if this value has been locked again since.
//
// errors.Is(err, spindle.ErrFenced) is true only if the lock is not held under that token. If ctx ends first, as Do's does
// when the lock is lost, the error is ctx's. If the lock is not held at all, Apply sends nothing to Spanner. A Set is held
// if all of its locks are held.
func (m *mutex) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if m.contender.err != nil {
		return time.Time{}, m.contender.err
	}
	return m.FenceIn(ctx).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spindle.Lock.ReadWriteTransaction, with the token that Apply would use. If the lock is
// not held, fn is not called.
func (m *mutex) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if m.contender.err != nil {
		return time.Time{}, m.contender.err
	}
	return m.FenceIn(ctx).ReadWriteTransaction(ctx, fn)
}

// Err returns an error that describes what is wrong with the arguments of New or All, or nil. It makes no RPC.
func (m *mutex) Err() error { return m.contender.err }

// FenceIn implements spindle.Holding, with the token that Apply would use.
func (m *mutex) FenceIn(ctx context.Context) spindle.Fence {
	if w := m.contender.work(ctx); w != nil {
		return w.fence(m.names...)
	}
	if h := m.now.Load(); h != nil {
		return h.fence(m.names...)
	}
	return m.contender.fence(0, m.names...)
}
