package lock

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

const maxSlots = 1000

// Semaphore lets at most n hold a name at a time. Each holder has a slot, with a lease and a token of its
// own; the slot of one that crashed frees itself. All methods may be called from any goroutine: those of
// one process queue, first come first served.
type Semaphore struct {
	stand stand
	name  string
	slots []string
}

// NewSemaphore returns a Semaphore of n slots on name, in a table that ddl.Create makes; n is 1 to 1000.
// The slots are locks named name/slot/0000 and so on. It makes no RPC; what is wrong with the arguments
// is returned by Acquire and TryAcquire. The options are those of New.
//
// All that use the name have to agree about n: ErrSize tells those that do not while others hold a slot.
func NewSemaphore(db *spanner.Client, tableName, name string, n int, opts ...spindle.Option) *Semaphore {
	s := &Semaphore{name: name}
	for i := range min(max(n, 0), maxSlots) {
		s.slots = append(s.slots, slot(name, i))
	}
	opts = append([]spindle.Option{func(c *options.Config) {
		if n < 1 || n > maxSlots {
			c.Refuse("a semaphore of %d: it needs 1 to %d slots", n, maxSlots)
		}
	}}, opts...)
	s.stand = newStand(db, tableName, fmt.Sprintf("semaphore %.64q", name), []string{name}, opts)
	s.stand.key += " semaphore"
	return s
}

func slot(name string, i int) string { return fmt.Sprintf("%s/slot/%04d", name, i) }

// Acquire blocks until a slot is held, or ctx ends: then it returns an error that wraps ctx's, and says
// who holds the slots. What waiting does not mend, such as ErrSize or a missing table, it returns at once.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	q, ok := enter(ctx, s.stand.queue())
	if !ok {
		return nil, s.stand.wrap("acquire", fmt.Errorf("not acquired: %w (other goroutines of this process were before this one)", ctx.Err()))
	}
	defer q.done()
	return s.acquire(ctx, false)
}

// TryAcquire takes a slot if one is free, and reports whether it did. It waits for nobody.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, bool, error) {
	if err := s.ready(ctx); err != nil {
		return nil, false, err
	}
	q, ok := tryEnter(s.stand.queue())
	if !ok {
		return nil, false, nil
	}
	defer q.done()
	p, err := s.acquire(ctx, true)
	return p, p != nil, err
}

func (s *Semaphore) ready(ctx context.Context) error {
	switch {
	case s.stand.err != nil:
		return s.stand.err
	case ctx.Err() != nil:
		return s.stand.wrap("acquire", fmt.Errorf("ctx had ended before: %w", ctx.Err()))
	}
	return nil
}

func (s *Semaphore) acquire(ctx context.Context, try bool) (*Permit, error) {
	config := s.stand.config
	promise := table.Promise{Lease: config.Lease, Value: config.Value, Slots: len(s.slots)}
	t, err := s.stand.acquire(ctx, s.slots, promise, s.choose, try)
	switch {
	case err != nil:
		return nil, s.stand.wrap("acquire", err)
	case t == nil:
		return nil, nil
	}
	p := &Permit{held: s.stand.keep(t), slot: t.Names()[0]}
	if err := s.agree(ctx); err != nil {
		_ = p.Release(context.WithoutCancel(ctx))
		return nil, s.stand.wrap("acquire", err)
	}
	return p, nil
}

// choose takes any slot that is free.
func (s *Semaphore) choose(seen []elect.Sight) ([]elect.Sight, time.Duration, error) {
	wait := seen[0].Free
	var free []elect.Sight
	for _, o := range seen {
		if o.Held() && o.Promise != nil && o.Free > 0 && o.Promise.Slots != len(s.slots) {
			return nil, 0, s.disagree(o.Observation)
		}
		wait = min(wait, o.Free)
		if o.Free <= 0 {
			free = append(free, o)
		}
	}
	if free == nil {
		return nil, wait, nil
	}
	return []elect.Sight{free[s.stand.clock.Random(time.Duration(len(free)))]}, 0, nil
}

// agree looks at all slots that others hold, once one is held here: of two that disagree and have taken
// different slots at the same time, one at least sees the other.
func (s *Semaphore) agree(ctx context.Context) error {
	start := s.stand.clock.Now()
	holders, err := s.holders(ctx)
	for err != nil && !elect.Lasting(err) && ctx.Err() == nil {
		elect.Sleep(ctx, s.stand.clock, s.stand.pause(start))
		holders, err = s.holders(ctx)
	}
	if err != nil {
		return err
	}
	for _, o := range holders {
		if o.Promise.Slots != len(s.slots) {
			return s.disagree(o)
		}
	}
	return nil
}

func (s *Semaphore) holders(ctx context.Context) ([]table.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.stand.config.Lease/3, time.Second))
	defer cancel()
	return s.stand.table.Holders(ctx, table.Range{From: slot(s.name, 0), To: s.name + "/slot/9999_9999999999999999"})
}

func (s *Semaphore) disagree(o table.Observation) error {
	return fmt.Errorf("%w: it has %d slots here, and %d for %s, who holds %q", ErrSize, len(s.slots), o.Promise.Slots, o.Writer, o.Name)
}

// Permit is a slot of a semaphore, from Acquire to Release. It renews itself in the background.
type Permit struct {
	held *held
	slot string
}

// Release gives the slot back, in one RPC. It blocks until that is done, or ctx ends: the slot is left to
// expire then. The error is ErrNotHeld where the slot was lost meanwhile, or given back before.
func (p *Permit) Release(ctx context.Context) error {
	if err := p.held.giveBack(ctx); err != nil {
		return p.held.wrap("release", err)
	}
	return nil
}

// Lost returns a channel that is closed the instant the slot is lost. Release does not close it.
func (p *Permit) Lost() <-chan struct{} { return p.held.lost }

// Token returns the fencing token of the slot, and zero where it is not held or its deadline has passed.
// Tokens of a semaphore's holders say nothing about one another: only those of one slot are ordered.
func (p *Permit) Token() spindle.Token { return p.held.token() }

// Fence returns a mutation that changes nothing and lets a commit succeed only while the slot is held
// under the token that it has now.
func (p *Permit) Fence() *spanner.Mutation {
	return p.held.fence.Fence(p.slot, table.Token(p.Token()))
}
