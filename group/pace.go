package group

import (
	"context"
	"time"
)

// If thousands of partitions have to move, they move in batches. A partition is then without work only while its own
// batch moves.

// revokeMore revokes the next batch of partitions that must move.
func (t *term) revokeMore() {
	t.revokes.off()
	l := local{planned: t.planning.Planned(), acting: t.acts(), leaving: t.leaving()}
	d := decide(t.m.inventory, func(*entry) partitionView { return partitionView{later: true} }, t.facts(l))
	t.revokeAll(d.revoke)
}

// revokeAll revokes one batch of partitions. A batch has at most half as many partitions as one commit could release. A
// larger batch would take longer, and each of its partitions is without work until the whole batch has moved. After a
// full batch, the next one follows once this one has been released, or after lease/50 if some work does not return.
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

// spareTime delays the next batch, so that other members have time to claim the partitions that were just released. The
// delay is twice as long as the release took.
func (t *term) spareTime(released time.Duration) {
	if t.revokes.on {
		t.revokes.set(t.m.config.Clock, 2*released)
	}
}
