package group

import (
	"context"
	"time"
)

// Thousands of partitions move some at a time. Each is then without work only while its own batch is released.

// revokeMore revokes the next partitions that move.
func (t *term) revokeMore() {
	t.revokes.off()
	l := local{planned: t.planning.planned(), acting: t.acts(), leaving: t.leaving()}
	d := decide(t.m.inventory, func(*entry) partitionView { return partitionView{later: true} }, t.facts(l))
	t.revokeAll(d.revoke)
}

// revokeAll revokes partitions that move: half as many as one commit could release, because each is without work until
// all have moved. It revokes the next once these were released, or lease/50 later if some work does not return.
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

// spareTime leaves claimants their time: twice what the release took.
func (t *term) spareTime(released time.Duration) {
	if t.revokes.on {
		t.revokes.set(t.m.config.Clock, 2*released)
	}
}
