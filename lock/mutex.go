package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Locker is what Do needs: a Mutex or a Set.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
	Lost() <-chan struct{}
}

// Mutex is a lock on one name. It renews itself in the background while it is held. All methods may be
// called from any goroutine: those of one process queue for it, first come first served, also where they
// use different values of the same name.
type Mutex struct{ mutex }

// New returns a Mutex on name, in a table that ddl.Create makes. It makes no RPC; what is wrong with the
// arguments is returned by Lock and TryLock. WithLease, WithDuration, WithHeartbeat, WithID, WithValue,
// WithLockDelay and WithLogger are the options that mean something here.
func New(db *spanner.Client, table, name string, opts ...spindle.Option) *Mutex {
	return &Mutex{mutex{stand: newStand(db, table, fmt.Sprintf("mutex %.64q", name), []string{name}, opts), names: []string{name}}}
}

// Fence returns a mutation that changes nothing and lets a commit succeed only while the mutex is held
// under the token that it has now: see spindle.Lock.Fence. Where it is not held the commit always fails.
func (m *Mutex) Fence() *spanner.Mutation {
	return m.stand.fence.Fence(m.names[0], table.Token(m.Token()))
}

// mutex is one or several names that are held together.
type mutex struct {
	stand stand
	names []string
	now   atomic.Pointer[turn] // nil: not locked
}

// turn is one time of holding, and the turn in this process's queue that goes with it.
type turn struct {
	*held
	queue *queue
}

// Lock blocks until the lock is held, or ctx ends: then it returns an error that wraps ctx's, and says
// who holds the lock. What waiting does not mend, such as a missing table, it returns at once.
//
// It queues behind the other goroutines of this process, the one that has this value locked included.
// ErrHeld tells a Lock from within Do of the same Locker, which would wait for itself.
func (m *mutex) Lock(ctx context.Context) error {
	_, err := m.lock(ctx)
	return err
}

// TryLock takes the lock if it is free, and reports whether it did. It waits for nobody, in this process
// or another.
func (m *mutex) TryLock(ctx context.Context) (bool, error) {
	if err := m.ready(ctx); err != nil {
		return false, err
	}
	q := tryEnter(m.stand.queue())
	if q == nil {
		return false, nil
	}
	t, err := m.hold(ctx, q, true)
	return t != nil, err
}

func (m *mutex) lock(ctx context.Context) (*turn, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	q := enter(ctx, m.stand.queue())
	if q == nil {
		return nil, m.stand.wrap("lock", fmt.Errorf("not acquired in %v: %w%s", time.Since(start).Round(time.Millisecond), ctx.Err(), m.inProcess()))
	}
	return m.hold(ctx, q, false)
}

func (m *mutex) ready(ctx context.Context) error {
	switch {
	case m.stand.err != nil:
		return m.stand.err
	case within(ctx, m):
		return m.stand.wrap("lock", ErrHeld)
	case ctx.Err() != nil:
		return m.stand.wrap("lock", fmt.Errorf("ctx had ended before: %w", ctx.Err()))
	}
	return nil
}

// inProcess says who of this process is in the way.
func (m *mutex) inProcess() string {
	if t := m.now.Load(); t != nil {
		return fmt.Sprintf(" (held by this very value, under token %v: Unlock it first)", t.term.Token())
	}
	return " (another goroutine of this process holds it or is before this one in the queue)"
}

func (m *mutex) hold(ctx context.Context, q *queue, try bool) (*turn, error) {
	promise := table.Promise{Lease: m.stand.config.Lease, Value: m.stand.config.Value}
	term, err := m.stand.acquire(ctx, m.names, promise, elect.All, try)
	if term == nil {
		q.done()
		if err != nil {
			err = m.stand.wrap("lock", err)
		}
		return nil, err
	}
	t := &turn{m.stand.keep(term), q}
	m.now.Store(t)
	return t, nil
}

// Unlock gives the lock back, in one RPC, and lets the next goroutine of this process have its turn. It
// blocks until that is done, or ctx ends: the lock is left to expire then. The error is ErrNotHeld where
// the lock is not held: another may have had it since it was lost, and what was done under it may need
// to be undone or done again.
//
// It is about the turn that this value has when it is called, whichever goroutine took it. Where several
// share a value, a second Unlock of one can take the lock from another: in Do that is told, and Do itself
// only ever gives back its own.
func (m *mutex) Unlock(ctx context.Context) error { return m.unlock(ctx, m.now.Load()) }

func (m *mutex) unlock(ctx context.Context, t *turn) error {
	if t == nil || !t.leave() {
		return m.stand.wrap("unlock", ErrNotHeld)
	}
	err := t.giveBack(ctx)
	m.now.Store(nil)
	t.queue.done()
	if err != nil {
		return m.stand.wrap("unlock", err)
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Lost returns a channel that is closed the instant the lock is lost: its lease ran out, or another
// claimed it. Unlock does not close it. Where the lock is not held the channel is closed already.
func (m *mutex) Lost() <-chan struct{} {
	if t := m.now.Load(); t != nil {
		return t.lost
	}
	return closed
}

// Token returns the fencing token that the lock is held under, and zero where it is not held or its
// deadline has passed. It is local and makes no RPC.
func (m *mutex) Token() spindle.Token {
	if t := m.now.Load(); t != nil {
		return t.token()
	}
	return 0
}
