package lock

import (
	"context"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
)

// holding has the methods that a Mutex, a Set and a Permit share.
//
// Nothing that outlives a call may point to a holding. Otherwise, forget would not be called when the program drops the
// holding.
type holding struct {
	contender *contender
	names     []string
	now       atomic.Pointer[held] // what was acquired last, or nil; it may have been released
	garbage   *atomic.Bool         // see forget
	step      string               // the name of the release in errors
}

// end releases the locks that h holds.
func (o *holding) end(ctx context.Context, h *held) error {
	if err := h.unlock(ctx); err != nil {
		return o.contender.wrap(o.step, err)
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Lost returns a channel that is closed as soon as this process finds that the lock is lost, for example because its
// lease expired, another process claimed it, or its work stalled. Releasing the lock does not close the channel. If a
// Mutex or a Set is not held, the channel is already closed. The channel of a Permit stays open if the Permit is
// released before it is lost.
//
// After you have lost a Mutex or a Set, you must still call Unlock once the work has stopped. Until you do, other
// goroutines of this process have to wait for the lock, even if they use a different Mutex or Set with the same name.
// Other processes have to wait only until the lease has expired.
func (o *holding) Lost() <-chan struct{} {
	if h := o.now.Load(); h != nil && (!h.left.Load() || h.isPermit()) {
		return h.lost
	}
	return closed
}

// Token returns the fencing token under which the lock is held. It returns zero if the lock is not held or its deadline
// has passed. It makes no RPC. Compare only tokens of the same lock, or of the same slot of a semaphore.
func (o *holding) Token() spindle.Token {
	if h := o.now.Load(); h != nil {
		return h.token()
	}
	return 0
}

// Left returns how long the lock stays held if no further heartbeat is acknowledged. The result is zero or negative if
// the lock is not held. Left makes no RPC.
func (o *holding) Left() time.Duration {
	if h := o.now.Load(); h != nil {
		return h.remaining()
	}
	return 0
}

// Apply is like spindle.Lock.Apply, with the lock's current token. Inside a Do of this value, it uses the token that Do
// acquired, even if this value has been locked again since.
//
// errors.Is(err, spindle.ErrFenced) is true only if the lock is not held under that token. If ctx ends first, as Do's
// context does when the lock is lost, Apply returns ctx's error. If the lock is not held, Apply sends nothing to
// Spanner. A Set is held only if all its locks are held.
func (o *holding) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if o.contender.err != nil {
		return time.Time{}, o.contender.err
	}
	return o.FenceIn(ctx).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spindle.Lock.ReadWriteTransaction, with the token that Apply would use. If the lock is
// not held, fn is not called.
func (o *holding) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if o.contender.err != nil {
		return time.Time{}, o.contender.err
	}
	return o.FenceIn(ctx).ReadWriteTransaction(ctx, fn)
}

// FenceIn implements spindle.Holding, with the token that Apply would use.
func (o *holding) FenceIn(ctx context.Context) spindle.Fence {
	for w := working(ctx); w != nil; w = w.within {
		if w.of == o {
			return w.fence()
		}
	}
	return o.fence()
}

// fence returns the fence for the token under which the locks are held now.
func (o *holding) fence() fence.Fence {
	if h := o.now.Load(); h != nil {
		return h.fence()
	}
	return o.contender.fence(0, o.names...)
}
