package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

// Mutex is a lock on one name. It renews itself in the background while it is held. All methods may be called from any
// goroutine: the goroutines of one process queue for it, first come, first served, even if they use different values of
// the same name.
type Mutex struct{ mutex }

// New returns a Mutex on name, in a table made by ddl.Create. It makes no RPC. If an argument is wrong, Lock and
// TryLock say so. The options that apply are WithLease, WithDuration, WithHeartbeat, WithID, WithValue, WithLockDelay,
// WithSharedRequests, WithLogger, WithMeterProvider and WithTracerProvider.
func New(db *spanner.Client, table, name string, opts ...spindle.Option) *Mutex {
	return &Mutex{mutex{contender: newContender(db, table, fmt.Sprintf("mutex %.64q", name), []string{name}, opts, nil), names: []string{name}}}
}

// Fence returns a mutation that changes nothing and lets a commit succeed only while the mutex is held under its
// present token: see spindle.Lock.Fence, and spindle.IsFenced for the error. If it is not held, the commit always
// fails.
//
// With it, a write under another lock needs this one too: add it to the mutations of the other lock's Apply. The error
// is ErrFenced then only if the other lock's token is not valid. If this one's is not, IsFenced recognizes the error.
func (m *Mutex) Fence() *spanner.Mutation {
	return m.contender.fence(m.Token(), m.names...).Mutations()[0]
}

// FenceStatement is spindle.Lock.FenceStatement under the mutex's present token. If the mutex is not held, no row is
// updated.
func (m *Mutex) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return m.contender.fence(m.Token(), m.names...).Statement(dialect)
}

// mutex is one or several names that are held together.
type mutex struct {
	contender contender
	names     []string
	now       atomic.Pointer[turn] // nil: not locked
}

// turn is one time of holding, with its turn in this process's queue.
type turn struct {
	*held
	queue *queue
	line  *line
}

// Lock blocks until the lock is held or ctx ends. The error then wraps ctx's and says who holds the lock. Errors that
// waiting can't fix, such as a missing table, are returned at once.
//
// Lock queues behind the other goroutines of this process, including the one that has this value locked. That one keeps
// its turn until its Unlock, or until its Do returns, even if it has lost the lock: it may still be at work, and two
// goroutines of one process must not work by surprise. Meanwhile this process waits, though others may hold the lock;
// the error and a warning in the log say so. With a ctx of Do, Lock returns ErrHeld where it would wait for itself: see
// Do.
func (m *mutex) Lock(ctx context.Context) error {
	_, err := m.lock(ctx, elect.All, false, new(waiting))
	return err
}

// TryLock takes the lock if it is free, and reports whether it did. It waits for nobody, in this process or another. If
// the work of ctx holds the lock itself, it returns ErrHeld, as Lock does.
func (m *mutex) TryLock(ctx context.Context) (bool, error) {
	t, err := m.lock(ctx, elect.All, true, new(waiting))
	return t != nil, err
}

// lock takes the lock when choose does. If try is set, it returns no turn if it would have to wait. It fills in w.
func (m *mutex) lock(ctx context.Context, choose elect.Choose, try bool, w *waiting) (*turn, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	clock := m.contender.config.Clock
	start := clock.Now()
	w.watch = m.contender.about.Watch()
	defer w.watch.Close()
	if h, _ := inTurn(m.contender.queue()); h != nil {
		h.warnOfWaiting()
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
		return m.contender.wrap("lock", fmt.Errorf("ctx had ended before: %w", ended(ctx)))
	}
	if own, by := m.contender.ownIn(ctx, m.names); own != nil {
		return m.contender.wrap("lock", fmt.Errorf("%w: %.64q, by Do of %s", ErrHeld, own[0], by))
	}
	for w := working(ctx); w != nil; w = w.within {
		if w.queue() == m.contender.queue() && !w.left.Load() {
			return m.contender.wrap("lock", fmt.Errorf("%w: it was lost, and has its turn in this process until Do returns", ErrHeld))
		}
	}
	return nil
}

// inProcess says which goroutine of this process is in the way.
func (m *mutex) inProcess() string {
	if t := m.now.Load(); t != nil {
		how := "held"
		if t.isLost() {
			how = "lost, and not unlocked,"
		}
		return fmt.Sprintf(" (%s by this very value, under token %v: Unlock it first)", how, t.term.Token())
	}
	if h, _ := inTurn(m.contender.queue()); h != nil && h.isLost() {
		return fmt.Sprintf(" (lost, and not unlocked, by another value of this process, under token %v: Unlock that one first, or return from its Do)", h.term.Token())
	}
	return " (another goroutine of this process holds it or is before this one in the queue)"
}

func (m *mutex) hold(ctx context.Context, q *queue, choose elect.Choose, try bool, w *waiting) (*turn, error) {
	w.queue = q
	m.contender.stand(w, q.ticket, m.names...)
	c := m.contender.candidate(w.line, m.names...)
	w.since = c.Clock.Now()
	term, err := m.contender.acquire(ctx, &c, inOrder(w.line, choose), try, w)
	if term == nil {
		w.line.handOn(q)
		q.done()
		if err != nil {
			err = m.contender.wrap("lock", err)
		}
		return nil, err
	}
	q.ticket = table.Ticket{} // the claim has deleted it
	t := &turn{m.contender.keep(term, w.watch), q, w.line}
	q.holds.Store(t.held)
	m.now.Store(t)
	return t, nil
}

// Unlock gives the lock back, in one RPC, and lets the next goroutine of this process have its turn. It blocks until
// that is done or ctx ends; the lock is then left to expire. If ctx had already ended, as in a deferred Unlock at a
// shutdown, Unlock takes three seconds at most instead. It returns ErrNotHeld if the lock was lost or never held:
// another process may have had it meanwhile, so work done under it may have to be undone or done again.
//
// It unlocks this value, whichever goroutine locked it. If goroutines share a value, a second Unlock by one can take
// the lock from another. In Do, the context of the other's work is then canceled. Do only ever gives back its own lock.
func (m *mutex) Unlock(ctx context.Context) error { return m.unlock(ctx, m.now.Load(), table.Due{}) }

// take implements Locker.
func (m *mutex) take(ctx context.Context, try bool) (*work, error) {
	t, err := m.lock(ctx, elect.All, try, new(waiting))
	if t == nil {
		return nil, err
	}
	return &work{held: t.held, unlock: func(ctx context.Context) error { return m.unlock(ctx, t, table.Due{}) }}, nil
}

// unlock gives a turn back, and records what is done under it, if that has a key.
func (m *mutex) unlock(ctx context.Context, t *turn, done table.Due) error {
	if t == nil || !t.leave() {
		return m.contender.wrap("unlock", ErrNotHeld)
	}
	if t.queue.isWanted() {
		t.line.goToTheEnd(t.queue)
	}
	err := t.giveBack(ctx, done)
	m.now.Store(nil)
	t.queue.done()
	if err != nil {
		return m.contender.wrap("unlock", err)
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Lost returns a channel that is closed the instant the lock is lost: its lease ran out, or another claimed it. Unlock
// does not close it. If the lock is not held, the channel is already closed.
//
// Call Unlock of this value after a loss too, once the work has stopped. Until then other goroutines of this process,
// and other values of the same name, wait for it, while other processes don't.
func (m *mutex) Lost() <-chan struct{} {
	if t := m.now.Load(); t != nil {
		return t.lost
	}
	return closed
}

// Token returns the fencing token under which the lock is held, or zero if it is not held or its deadline has passed.
// It is local: no RPC.
func (m *mutex) Token() spindle.Token {
	if t := m.now.Load(); t != nil {
		return t.token()
	}
	return 0
}

// Left returns how long the lock stays held if no further heartbeat is acknowledged. It is not positive if the lock is not
// held. It is local: no RPC.
func (m *mutex) Left() time.Duration {
	if t := m.now.Load(); t != nil {
		return t.remaining()
	}
	return 0
}

// Apply is spindle.Lock.Apply under the lock's present token, or, with a ctx of Do, under the token of that turn, even
// if this value is locked again by then. errors.Is(err, spindle.ErrFenced) is true exactly when the lock is not held
// under that token any more, or not held at all: Spanner is not asked then. A Set is held if all of its locks are.
func (m *mutex) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if m.contender.err != nil {
		return time.Time{}, m.contender.err
	}
	return m.FenceIn(ctx).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is spindle.Lock.ReadWriteTransaction under the token that Apply would use. If the lock is not
// held, fn is not called.
func (m *mutex) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if m.contender.err != nil {
		return time.Time{}, m.contender.err
	}
	return m.FenceIn(ctx).ReadWriteTransaction(ctx, fn)
}

// Err returns what is wrong with the arguments of New or All, or nil. It makes no RPC.
func (m *mutex) Err() error { return m.contender.err }

// FenceIn implements spindle.Holding, as Apply would.
func (m *mutex) FenceIn(ctx context.Context) fence.Fence {
	token := m.Token()
	if w := m.contender.work(ctx); w != nil {
		token = w.token()
	}
	return m.contender.fence(token, m.names...)
}
