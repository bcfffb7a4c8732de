package group

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Thousands of partitions move some at a time: each is without work for as long as it takes to move those that move with
// it, and not all of them.

// tellMore tells the work of the next partitions that move: half as many as one commit could give, as each of them is
// without work until all have moved. The next are told once these were given, or a fiftieth of a lease later if some work
// does not return.
func (t *term) tellMore() {
	t.telling.off()
	if t.leaving() || t.elder {
		return
	}
	told, most := 0, max(t.config.Batch/2, 1)
	for _, s := range t.shares {
		h := t.have[s]
		switch {
		case h == nil || h.told || t.mine[s]:
		case told == most:
			t.telling.set(t.config.Clock, t.config.Lease/50)
			return
		default:
			t.tell(h, ErrMoved)
			told++
		}
	}
}

// pause leaves those who take partitions the time for it, which is twice what it takes to give them.
func (t *term) pause(gave time.Duration) {
	if t.telling.on {
		t.telling.set(t.config.Clock, 2*gave)
	}
}

// wanted are the partitions that are to be this member's and are not, in the order of their names.
func (t *term) wanted() []*share {
	if t.leaving() {
		return nil
	}
	var wanted []*share
	for _, s := range t.shares {
		if t.mine[s] && t.have[s] == nil && s.busy == nil {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

// window is what a look is about, of what is wanted. If that is much, and not just free, as after a start, it is the first by
// name, as those are given first, and others in turn, as work that hangs may keep the first for long.
func (t *term) window(wanted []*share) []*share {
	n := 2 * t.config.Batch
	if len(wanted) <= 2*n || t.open {
		return wanted
	}
	first, rest := wanted[:n:n], wanted[n:]
	from := t.turn % len(rest)
	return append(first, rest[from:min(from+n, len(rest))]...)
}

// goOnLooking is about the next window: at once, if something in this one could be taken.
func (t *term) goOnLooking(taken bool) {
	t.turn += 2 * t.config.Batch
	if taken {
		t.soon(0)
	} else {
		t.soon(t.patient(never))
	}
}

// patient is the pause before the next look for a partition that can be taken after wait. If somebody has it, that
// is a fiftieth of the lease at first, as it is about to be given; or three times what a look takes, if many are awaited:
// or the looks would hold up what they wait for.
func (t *term) patient(wait time.Duration) time.Duration {
	spread := t.config.Clock.Random(t.config.Lease/50 + 1)
	if wait != never {
		return wait + spread
	}
	every, waited := max(t.config.Lease/50, 3*t.took), t.config.Clock.Now().Since(t.changed)
	if waited < t.config.Lease {
		return elect.Jitter(t.config.Clock, every)
	}
	return max(waited/10, every)
}
