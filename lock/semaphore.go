package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

// Semaphore lets at most n holders hold a name at a time. Each holder has its own slot, with its own lease and token.
// If a holder crashes, its slot becomes free when the lease expires. All methods can be called from any goroutine.
//
// The goroutines of a process acquire free slots independently of each other. If no slot is free, they queue in order
// of arrival. If another process claims a slot first, the goroutine that tried to claim it tries again.
type Semaphore struct {
	contender *contender
	name      string
	slots     wait.Slots
}

// NewSemaphore returns a semaphore with the given name and n slots (1 to 1000), in a table made by ddl.Create. The slots
// of a semaphore x are locks named x/slot/0000, x/slot/0001 and so on, so its name can have at most 4086 bytes.
// NewSemaphore makes no RPC. If an argument is invalid, Acquire and TryAcquire return an error that describes the
// mistake.
//
// All processes should use the same n. During a rolling update that changes n, old and new processes both get permits.
// While a process with a smaller n holds a slot or waits for one, other processes claim only slots below that n, but
// keep any higher slots that they already hold. There are never more holders than the largest n. A Semaphore logs a
// warning once for each different n that it finds in use.
func NewSemaphore(db *spanner.Client, tableName, name string, n int, opts ...Option) *Semaphore {
	s := &Semaphore{name: name}
	s.slots = wait.NewSlots(name, n, func(o table.Observation) {
		s.contender.config.Log.Warn("another process gives this semaphore a different size; while the process with the smaller size holds a slot, only slots within that size can be acquired; use the same size in all processes",
			"table", s.contender.about.Table, "lock", s.name, "id", s.contender.config.ID, "slots", len(s.slots.Names), "theirs", o.LeaseRecord.Slots, "holder", o.Holder())
	})
	s.contender = newContender(db, tableName, fmt.Sprintf("semaphore %.64q", name), []string{name}, opts, func(c *options.Config) {
		c.Require(n >= 1 && n <= wait.MostSlots, "the number of slots is %d, but must be from 1 to %d", n, wait.MostSlots)
		c.RefuseIf(wait.CheckSemaphore(name))
	})
	s.contender.key += " semaphore"
	return s
}

// Err returns an error that describes what is wrong with the arguments of NewSemaphore, or nil. It makes no RPC.
func (s *Semaphore) Err() error { return s.contender.err }

// Acquire blocks until a slot is held or ctx ends. If ctx ends first, the error wraps ctx.Err() and says what is in the
// way, such as the processes that hold the slots. Acquire then tries to give up its place in the queue before it
// returns, as Mutex.Lock does. It also treats errors as Mutex.Lock does. For example, if the table is missing when
// Acquire begins, Acquire returns the error immediately.
//
// Inside a Do of the same semaphore, Acquire acquires another slot, and may have to wait for it. If nested calls of Do
// already hold all n slots, Acquire returns ErrHeld, because it would wait for itself. If one of these calls uses a
// smaller n, the smaller n counts.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) { return s.acquire(ctx, false) }

// TryAcquire acquires a slot if one is free, and reports whether it did. It does not wait, and leaves free slots to
// waiters that come first.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, bool, error) {
	p, err := s.acquire(ctx, true)
	return p, p != nil, err
}

func (s *Semaphore) acquire(ctx context.Context, try bool) (*Permit, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	garbage := new(atomic.Bool)
	k := s.seeker(try, garbage)
	h, err := k.wait(ctx, k.seek)
	if h == nil {
		if errors.Is(err, errFull) {
			return nil, nil
		}
		return nil, s.contender.wrap("acquire", err)
	}
	p := s.permit(h, h.term.Names()[0], garbage)
	runtime.AddCleanup(p, forget, garbage)
	return p, nil
}

func (s *Semaphore) permit(h *held, slot string, garbage *atomic.Bool) *Permit {
	p := &Permit{holding{contender: s.contender, names: []string{slot}, garbage: garbage, step: "release"}}
	p.now.Store(h)
	return p
}

func (s *Semaphore) ready(ctx context.Context) error {
	if err := s.contender.ready(ctx, "acquire"); err != nil {
		return err
	}
	if own, _ := s.contender.ownIn(ctx, s.slots.Names[:s.usable(ctx)]); len(own) == s.usable(ctx) {
		return s.contender.wrap("acquire", fmt.Errorf("%w: Do has all %d slots", ErrHeld, len(own)))
	}
	return nil
}

// usable returns the maximum number of slots that the caller can acquire. If ctx comes from a Do that holds a slot of
// the same semaphore with a smaller size, only slots within the smaller size can be acquired.
func (s *Semaphore) usable(ctx context.Context) int {
	n := len(s.slots.Names)
	for w := working(ctx); w != nil; w = w.within {
		if w.token() != 0 && w.queue() == s.contender.queue() {
			n = min(n, w.by.Ticket.Slots)
		}
	}
	return n
}

// take implements Locker.
func (s *Semaphore) take(ctx context.Context, try bool) (*work, error) {
	p, err := s.acquire(ctx, try)
	if p == nil {
		return nil, err
	}
	return &work{held: p.now.Load(), of: &p.holding, permit: p}, nil
}

// Permit returns the permit that a Do of this Semaphore has acquired, if ctx is the context of that Do. With any other
// ctx, it returns a permit that is not held, so the fence refuses all writes under it.
func (s *Semaphore) Permit(ctx context.Context) *Permit {
	if w := s.contender.work(ctx); w != nil {
		return w.permit
	}
	return s.permit(nil, wait.Slot(s.name, 0), nil)
}

// Permit is a slot of a semaphore, held from Acquire to Release. While the slot is held, its lease is renewed in the
// background. If a Permit is dropped without Release, its slot stays held until the process ends, and a warning in the
// log says so.
type Permit struct{ holding }

// Release releases the slot in one RPC. If ctx ends before that is done, the slot is left to expire. If ctx has already
// ended when Release is called, Release still tries for at most three seconds, or ten inside a Do of this semaphore. It
// returns ErrNotHeld if the slot has been lost or was already released.
func (p *Permit) Release(ctx context.Context) error { return p.end(ctx, p.now.Load()) }

// Fence returns a mutation that changes nothing, but makes a commit fail unless the slot is still held under its
// current token. See Mutex.Fence.
func (p *Permit) Fence() *spanner.Mutation { return p.fence().Mutations()[0] }

// FenceStatement is like spindle.Lock.FenceStatement, with the slot's token. If the slot is not held, the statement
// updates no row.
func (p *Permit) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return p.fence().Statement(dialect)
}
