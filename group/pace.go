package group

import (
	"context"
	"time"
)

// Thousands of partitions move some at a time: each is without work for as long as it takes to release those that are
// released with it, and not all of them.

// revokeMore revokes the next partitions that move.
func (t *term) revokeMore() {
	t.revokes.off()
	l := local{planned: t.planning.planned(), acting: t.acts(), leaving: t.leaving()}
	d := decide(t.m.inventory, func(*entry) partitionView { return partitionView{later: true} }, t.facts(l))
	t.revokeAll(d.revoke)
}

// revokeAll revokes partitions that move: half as many as one commit could release, as each of them is without work until
// all have moved. The next are revoked once these were released, or a fiftieth of a lease later if some work does not
// return.
func (t *term) revokeAll(move []*entry) {
	for _, e := range move {
		switch {
		case !t.acts():
			t.revoke(e, context.Cause(t.lease.Context()))
		case e.paused:
			t.revoke(e, ErrPaused)
		default:
			t.revoke(e, ErrMoved)
		}
	}
	if len(move) >= max(t.m.config.Batch/2, 1) {
		t.revokes.set(t.m.config.Clock, t.m.config.Lease/50)
	}
}

// spareTime leaves those who claim partitions the time for it, which is twice what it took to release them.
func (t *term) spareTime(released time.Duration) {
	if t.revokes.on {
		t.revokes.set(t.m.config.Clock, 2*released)
	}
}
