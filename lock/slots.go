package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// slots records the slots of one semaphore that goroutines of this process hold or are about to claim. Without it, a
// goroutine whose look is older than another goroutine's claim could choose the same slot.
type slots struct {
	mu    sync.Mutex
	taken map[string]bool
}

// A pick is the slot that a goroutine has chosen.
type pick struct {
	of   *slots
	slot string // "" if there is none
	over bool
}

// from chooses one of the free slots that no other goroutine of this process has, and drops the earlier choice. The
// function which selects the slot. from reports false if there is no such slot, or if the goroutine has to wait for the
// returned time.
func (p *pick) from(free []elect.LockView, which func([]elect.LockView) (int, time.Duration, bool)) (elect.LockView, time.Duration, bool) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.taken, p.slot)
	p.slot = ""
	free = slices.DeleteFunc(slices.Clone(free), func(s elect.LockView) bool { return p.of.taken[s.Name] })
	if p.over || len(free) == 0 {
		return elect.LockView{}, 0, false
	}
	i, wait, ok := which(free)
	if !ok {
		return elect.LockView{}, wait, false
	}
	p.slot = free[i].Name
	p.of.taken[p.slot] = true
	return free[i], 0, true
}

// drop leaves the slot to the other goroutines of this process. An attempt that was abandoned when its ctx ended can no
// longer choose a slot after that.
func (p *pick) drop() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.taken, p.slot)
	p.slot, p.over = "", true
}
