package wait

import (
	"context"
	"fmt"
	"sync"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// MostSlots is the largest size of a semaphore.
const MostSlots = 1000

// Slots contains the slots that this process gives a semaphore. Another process can give the semaphore a different
// size.
type Slots struct {
	Name    string                  // the semaphore's
	Names   []string                // the locks
	differs func(table.Observation) // is called with each holder that gives the semaphore a different size
}

// NewSlots returns n slots. The caller must check n, before or after the call. If a holder gives the semaphore a size
// other than n, warn is called once for each such size, possibly from several goroutines at the same time.
func NewSlots(name string, n int, warn func(table.Observation)) Slots {
	var said sync.Map // the different sizes
	s := Slots{Name: name, differs: func(o table.Observation) {
		if _, again := said.LoadOrStore(o.LeaseRecord.Slots, true); !again {
			warn(o)
		}
	}}
	for i := range min(max(n, 0), MostSlots) {
		s.Names = append(s.Names, Slot(name, i))
	}
	return s
}

// CheckSemaphore returns an error if a semaphore's name is so long that the names of its slots would be too long.
func CheckSemaphore(name string) error {
	if most := table.MaxName - len(Slot("", 0)); len(name) > most {
		return fmt.Errorf("semaphore name %.32q... has %d bytes, but at most %d are allowed, because its slots have longer names", name, len(name), most)
	}
	return nil
}

// Slot returns the name of a slot.
func Slot(name string, i int) string { return fmt.Sprintf("%s/slot/%04d", name, i) }

// SlotQueue returns the name of the queue for all slots of a semaphore.
func SlotQueue(name string) string { return name + table.Slots }

// Common returns how many slots this process and all holders know, according to a poll.
func (s *Slots) Common(seen []elect.LockView) int {
	var holders []table.Observation
	for _, o := range seen {
		if o.FreeIn > 0 && o.Confirmed() && o.LeaseRecord != nil {
			holders = append(holders, o.Observation)
		}
	}
	return s.common(holders)
}

// common returns the smallest size that this process or a holder gives the semaphore, and calls differs for each holder
// with a different size. It skips holders that record no size, because a mutex can have the same name as a slot.
func (s *Slots) common(holders []table.Observation) int {
	common := len(s.Names)
	for _, o := range holders {
		if size := o.LeaseRecord.Slots; size > 0 && size != len(s.Names) {
			common = min(common, size)
			s.differs(o)
		}
	}
	return common
}

// IsKnown reports whether all holders of slots know the chosen slot, which the caller has claimed. A process that gives
// the semaphore a smaller size does not know the slots beyond that size, and may have claimed a slot since the caller's
// last poll. IsKnown therefore reads all held slots again. The caller must release a slot that is not known.
func (s *Slots) IsKnown(ctx context.Context, t table.Table, chosen string) (known bool, err error) {
	all := table.Range{From: Slot(s.Name, 0), To: s.Name + "/slot/9999_9999999999999999"}
	holders, err := t.Holders(ctx, all, func(name string) bool { return table.QueueOfSlot(name) == SlotQueue(s.Name) })
	if err != nil {
		return false, fmt.Errorf("can't read which processes hold the other slots: %w", err)
	}
	return chosen < Slot(s.Name, s.common(holders)), nil
}

// Free returns the free slots that all holders and waiters know. The poll that returned seen must also have read the
// queue of p.
func (s *Slots) Free(p *Place, seen []elect.LockView) (free []elect.LockView) {
	common := s.Common(seen)
	for _, t := range p.seen[0].Tickets {
		if t.Slots > 0 && !t.Expired(p.at) {
			common = min(common, t.Slots)
		}
	}
	for _, o := range seen {
		if o.FreeIn <= 0 && o.Name < Slot(s.Name, common) {
			free = append(free, o)
		}
	}
	return free
}

// Pick decides to claim one of the free slots if it is the waiter's turn. Otherwise, it decides how long to wait.
func (s *Slots) Pick(p *Place, free, seen []elect.LockView) elect.Decision {
	i, wait, passed, ok := p.free(free)
	switch {
	case ok:
		return elect.Decision{Claim: []elect.LockView{free[i]}, Urgency: p.Urgency(), Also: passed}
	case wait == 0: // until one of the slots can be free
		wait = p.Config.Lease
		for _, o := range seen {
			if o.FreeIn > 0 {
				wait = min(wait, o.FreeIn)
			}
		}
	}
	return elect.Decision{Wait: wait}
}
