package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// slots records which slots of a semaphore the goroutines of this process hold or are about to claim. Without this
// record, a goroutine that polled before another goroutine's claim could choose the same slot.
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

// from gives up the slot that was chosen before, and chooses another from the free slots that no other goroutine of
// this process has chosen. The which function makes the choice. from returns false if there is no such slot, or if the
// goroutine must wait for the returned time.
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

// drop gives up the chosen slot, so that other goroutines of this process can choose it. An attempt that was abandoned
// when its ctx ended can't choose a slot after that.
func (p *pick) drop() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.taken, p.slot)
	p.slot, p.over = "", true
}
