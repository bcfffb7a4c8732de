package lock

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
)

// An Option changes one setting of a lock. Use the functions of package spindle that return a LockOption or a
// CommonOption.
type Option = spindle.LockOption

// Mutex is a lock on one name. While it is held, it is renewed in the background. All methods can be called from any
// goroutine. The goroutines of a process queue for the name in order of arrival, even if they use different Mutex
// values.
type Mutex struct{ mutex }

// New returns a Mutex with the given name, in a table made by ddl.Create. It makes no RPC. If an argument is invalid,
// Lock and TryLock return an error that describes the mistake.
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
// Fence can also make a write under a different lock depend on this mutex. To do so, pass the mutation to the other
// lock's Apply, along with your own. If the other lock's token is not valid, the error is ErrFenced. If only this
// mutex's token is not valid, the error is not ErrFenced, but IsFenced recognizes it.
func (m *Mutex) Fence() *spanner.Mutation {
	return m.fence().Mutations()[0]
}

// FenceStatement is like spindle.Lock.FenceStatement, with the mutex's current token. If the mutex is not held, the
// statement updates no row.
func (m *Mutex) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return m.fence().Statement(dialect)
}

// mutex is one name, or several names that are held together.
type mutex struct{ holding }

func newMutex(c *contender, names ...string) mutex {
	return mutex{holding{contender: c, names: names, garbage: new(atomic.Bool), step: "unlock"}}
}

// Lock blocks until the lock is held or ctx ends. If ctx ends first, the error wraps ctx.Err() and, if it is known,
// says which process holds the lock. Lock then tries to give up its place in the queue before it returns, so that no
// process waits for this one if the program exits. That takes at most a tenth of the lease or 500 ms, whichever is
// shorter.
//
// Lock keeps trying during an outage of Spanner. If the table, a permission or credentials go missing while Lock waits,
// it tries again. It returns the error once requests have been refused for one lease, or for 10 s if that is longer. It
// returns the error immediately if waiting can't fix it, and also if the table or a permission is missing when Lock
// begins, unless requests of goroutines ahead of it in this process have succeeded.
//
// Lock queues behind the other goroutines of this process, including one that has locked this value. A goroutine that
// has acquired the lock keeps the other goroutines waiting until it calls Unlock or returns from Do, even if it loses
// the lock. That goroutine might still be at work, and two goroutines of one process must not unexpectedly work at the
// same time. Other processes do not wait for that goroutine. If a lost lock has not been unlocked, Lock's error and a
// warning in the log say so.
//
// A value that is dropped without Unlock keeps the lock until the process ends, because the program may rely on that.
// Once the value has been garbage-collected, a warning in the log names the line that locked it. If an operator then
// releases the lock, the process can acquire the lock again. Do always unlocks the lock.
//
// If Lock is called inside a Do that holds the lock, it returns ErrHeld, because it would wait for itself. See Do.
func (m *mutex) Lock(ctx context.Context) error {
	_, err := m.take(ctx, false)
	return err
}

// TryLock acquires the lock if it is free, and reports whether it did. It waits neither for goroutines of this process
// nor for other processes. Inside a Do that holds the lock, it returns ErrHeld, as Lock does.
func (m *mutex) TryLock(ctx context.Context) (bool, error) {
	own, err := m.take(ctx, true)
	return own != nil, err
}

// take implements Locker.
func (m *mutex) take(ctx context.Context, try bool) (*work, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	return m.lock(ctx, m.contender.waiter(try, m.garbage, m.names...))
}

// lock acquires the lock with w. It returns nil if w must not wait and the lock is not free.
func (m *mutex) lock(ctx context.Context, w *waiter) (*work, error) {
	h, err := w.wait(ctx, w.lock)
	if h == nil {
		if err != nil {
			err = m.contender.wrap("lock", err)
		}
		return nil, err
	}
	m.now.Store(h)
	return &work{held: h, of: &m.holding}, nil
}

func (m *mutex) ready(ctx context.Context) error {
	if err := m.contender.ready(ctx, "lock"); err != nil {
		return err
	}
	if own, by := m.contender.ownIn(ctx, m.names); own != nil {
		return m.contender.wrap("lock", fmt.Errorf("%w: %.64q, by Do of %s", ErrHeld, own[len(own)-1], by))
	}
	for w := working(ctx); w != nil; w = w.within {
		if w.queue() == m.contender.queue() && !w.left.Load() {
			return m.contender.wrap("lock", fmt.Errorf("%w: Do has lost the lock but has not returned; until it returns, no goroutine of this process can acquire the lock again", ErrHeld))
		}
	}
	return nil
}

// Unlock releases the lock in one RPC, and lets the next goroutine of this process acquire it. If ctx ends before that
// is done, the lock is left to expire. If ctx has already ended when Unlock is called, as in a deferred Unlock during a
// shutdown, Unlock still tries for at most three seconds, or ten inside a Do of this value.
//
// After an error, you need not do anything: this value counts as unlocked, and can be locked again.
//
// Unlock returns ErrNotHeld if the lock was lost or never held. After a loss, another process may have held the lock,
// so the work may have to be undone or repeated.
//
// Unlock unlocks this value, no matter which goroutine locked it. If goroutines share a value, a second Unlock by one
// goroutine can release the lock that another goroutine has acquired since. If that other goroutine is in Do, the
// context of its function is then canceled. Do itself releases only the lock that it acquired.
func (m *mutex) Unlock(ctx context.Context) error { return m.end(ctx, m.now.Load()) }

// Err returns an error that describes what is wrong with the arguments of New or All, or nil. It makes no RPC.
func (m *mutex) Err() error { return m.contender.err }
