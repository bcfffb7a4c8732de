package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

const maxSlots = 1000

// Semaphore lets at most n holders hold a name at a time. Each holder has its own slot, with its own lease and token.
// If a holder crashes, its slot becomes free when the lease expires. All methods can be called from any goroutine.
//
// The goroutines of a process acquire free slots independently of each other. If no slot is free, they queue in order
// of arrival. If another process claims a slot first, the goroutine that tried to claim it queues again.
type Semaphore struct {
	contender contender
	name      string
	slots     []string
	others    sync.Map // the different sizes that have been logged
}

// NewSemaphore returns a Semaphore of n slots on name, in a table made by ddl.Create, where n is 1 to 1000. The slots
// are locks named name/slot/0000, name/slot/0001 and so on. NewSemaphore makes no RPC. If an argument is invalid,
// Acquire and TryAcquire return an error that describes the mistake.
//
// All processes should use the same n. During a rolling update that changes n, processes of both versions get permits.
// While a process with a smaller n holds a slot, the other processes claim only slots below that n. If they already
// hold higher slots, they keep them until they release them. There are never more holders than the largest n. Each
// different n is logged once, as a warning.
func NewSemaphore(db *spanner.Client, tableName, name string, n int, opts ...Option) *Semaphore {
	s := &Semaphore{name: name}
	for i := range min(max(n, 0), maxSlots) {
		s.slots = append(s.slots, slot(name, i))
	}
	s.contender = newContender(db, tableName, fmt.Sprintf("semaphore %.64q", name), []string{name}, opts, func(c *options.Config) {
		c.Require(n >= 1 && n <= maxSlots, "the number of slots is %d, but must be from 1 to %d", n, maxSlots)
	})
	s.contender.key += " semaphore"
	return s
}

// Err returns an error that describes what is wrong with the arguments of NewSemaphore, or nil. It makes no RPC.
func (s *Semaphore) Err() error { return s.contender.err }

func slot(name string, i int) string { return fmt.Sprintf("%s/slot/%04d", name, i) }

// queueOf returns the name of the queue for all slots of a semaphore.
func queueOf(name string) string { return name + "/slot/" }

// isSlot reports whether name is a slot of this semaphore, whatever the semaphore's size. The check is needed because
// the names of other locks can sort between the names of the slots.
func (s *Semaphore) isSlot(name string) bool {
	digits, ok := strings.CutPrefix(name, s.name+"/slot/")
	return ok && len(digits) == 4 && strings.Trim(digits, "0123456789") == ""
}

// Acquire blocks until a slot is held or ctx ends. If ctx ends first, the error wraps ctx.Err() and says which
// processes hold the slots, and Acquire deletes its place in the queue before it returns, as Mutex.Lock does. Errors that waiting can't fix, such as a missing table, are returned immediately.
//
// Inside a Do of the same semaphore, Acquire acquires another slot, and may have to wait for it. If nested calls of Do
// already hold all n slots, Acquire returns ErrHeld, because it would wait for itself. If one of them gives the semaphore
// a smaller size, that size counts.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	k := s.seek()
	defer k.waiting.watch.Close()
	for inLine := k.queue.waiting(); ; inLine = true {
		if inLine && !k.line(ctx) {
			k.quit()
			return nil, s.contender.wrap("acquire", fmt.Errorf("not acquired: %w (other goroutines of this process were ahead of this one in the queue)", ended(ctx)))
		}
		p, err := k.acquire(ctx, false)
		switch {
		case errors.Is(err, errFull): // the goroutine is not at the front of the queue, so it queues
		case err != nil:
			k.quit()
			return nil, s.contender.wrap("acquire", err)
		default:
			return p, nil
		}
	}
}

// TryAcquire acquires a slot if one is free, and reports whether it did. It does not wait.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, bool, error) {
	if err := s.ready(ctx); err != nil {
		return nil, false, err
	}
	k := s.seek()
	defer k.waiting.watch.Close()
	if k.queue.waiting() {
		k.quit()
		return nil, false, nil
	}
	p, err := k.acquire(ctx, true)
	switch {
	case errors.Is(err, errFull):
		k.quit()
		return nil, false, nil
	case err != nil:
		k.quit()
		return nil, false, s.contender.wrap("acquire", err)
	}
	return p, true, nil
}

func (s *Semaphore) ready(ctx context.Context) error {
	switch {
	case s.contender.err != nil:
		return s.contender.err
	case ctx.Err() != nil:
		return s.contender.wrap("acquire", fmt.Errorf("ctx had already ended: %w", ended(ctx)))
	}
	if own, _ := s.contender.ownIn(ctx, s.slots[:s.usable(ctx)]); len(own) == s.usable(ctx) {
		return s.contender.wrap("acquire", fmt.Errorf("%w: Do has all %d slots", ErrHeld, len(own)))
	}
	return nil
}

// usable returns how many slots the caller can acquire: while a Do that ctx comes from holds a slot of the same semaphore
// with a smaller size, only the slots of that size.
func (s *Semaphore) usable(ctx context.Context) int {
	n := len(s.slots)
	for w := working(ctx); w != nil; w = w.within {
		if w.permit != nil && w.token() != 0 && w.queue() == s.contender.queue() {
			n = min(n, w.slots)
		}
	}
	return n
}

// take implements Locker.
func (s *Semaphore) take(ctx context.Context, try bool) (*work, error) {
	var p *Permit
	var err error
	if try {
		p, _, err = s.TryAcquire(ctx)
	} else {
		p, err = s.Acquire(ctx)
	}
	if p == nil {
		return nil, err
	}
	return &work{held: p.held, permit: p, slots: len(s.slots), unlock: p.Release}, nil
}

// Permit returns the permit that a Do of this Semaphore has acquired, if ctx is the context of that Do. With any other
// ctx, it returns a permit that is not held, so the fence refuses all writes under it.
func (s *Semaphore) Permit(ctx context.Context) *Permit {
	if w := s.contender.work(ctx); w != nil {
		return w.permit
	}
	none := &held{contender: &s.contender, lost: closed}
	none.left.Store(true)
	return &Permit{held: none, slot: slot(s.name, 0)}
}

func (s *Semaphore) holders(ctx context.Context) ([]table.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, min(max(s.contender.config.Lease/3, time.Second), 10*time.Second))
	defer cancel()
	all := table.Range{From: slot(s.name, 0), To: s.name + "/slot/9999_9999999999999999"}
	return s.contender.table.Holders(ctx, all, s.isSlot)
}

// common returns the number of slots that this semaphore and all the holders know, which is the smallest of their
// sizes. A holder that records no size is skipped, because a mutex can have the same name as a slot.
func (s *Semaphore) common(holders []table.Observation) int {
	common := len(s.slots)
	for _, o := range holders {
		if size := o.LeaseRecord.Slots; size > 0 && size != len(s.slots) {
			common = min(common, size)
			s.warn(o)
		}
	}
	return common
}

// warn logs a warning, once for each different size.
func (s *Semaphore) warn(o table.Observation) {
	if _, said := s.others.LoadOrStore(o.LeaseRecord.Slots, true); !said {
		s.contender.config.Log.Warn("another process gives this semaphore a different size; while both processes hold slots, only slots that exist in both sizes can be acquired",
			"table", s.contender.about.Table, "lock", s.name, "id", s.contender.config.ID, "slots", len(s.slots), "theirs", o.LeaseRecord.Slots, "holder", o.Holder())
	}
}

// Permit is a slot of a semaphore, held from Acquire to Release. While it is held, it is renewed in the background. If a
// Permit is dropped without Release, its slot stays held until the process ends, and a warning in the log says so.
type Permit struct {
	held *held
	slot string
	quit func() // makes the slot available to other goroutines of this process
}

// Release releases the slot in one RPC. It blocks until that is done or ctx ends, in which case the slot is left to
// expire. If ctx has already ended when Release is called, Release takes at most three seconds instead. It returns
// ErrNotHeld if the slot has been lost or was already released.
func (p *Permit) Release(ctx context.Context) error {
	if !p.held.leave() {
		return p.held.wrap("release", ErrNotHeld)
	}
	defer p.quit()
	if err := p.held.giveBack(ctx, table.Due{}); err != nil {
		return p.held.wrap("release", err)
	}
	return nil
}

// Lost returns a channel that is closed as soon as the slot is lost. Release does not close it.
func (p *Permit) Lost() <-chan struct{} { return p.held.lost }

// Token returns the fencing token of the slot, or zero if the slot is not held or its deadline has passed. Compare only
// tokens of the same slot. The order of tokens of different slots means nothing.
func (p *Permit) Token() spindle.Token { return p.held.token() }

// Left returns how long the slot stays held if no further heartbeat is acknowledged. The result is zero or negative if
// the slot is not held.
func (p *Permit) Left() time.Duration { return p.held.remaining() }

// Fence returns a mutation that changes nothing, but makes a commit fail unless the slot is still held under its
// current token. See Mutex.Fence.
func (p *Permit) Fence() *spanner.Mutation { return p.fence().Mutations()[0] }

// FenceStatement is like spindle.Lock.FenceStatement, with the slot's token. If the slot is not held, the statement
// updates no row.
func (p *Permit) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return p.fence().Statement(dialect)
}

// Apply is like spindle.Lock.Apply, with the slot's token. errors.Is(err, spindle.ErrFenced) is true only if the
// slot is no longer held. If ctx ends first, the error is ctx's.
func (p *Permit) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return p.fence().Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spindle.Lock.ReadWriteTransaction, with the slot's token. If the slot is not held, fn is
// not called.
func (p *Permit) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return p.fence().ReadWriteTransaction(ctx, fn)
}

// FenceIn implements spindle.Holding.
func (p *Permit) FenceIn(context.Context) spindle.Fence { return p.fence() }

func (p *Permit) fence() fence.Fence { return p.held.fence(p.slot) }
