package group

import (
	"context"
	"time"
)

// When thousands of partitions move, they move in batches, so that each partition is without work only while its own
// batch moves.

// revokeMore revokes the next batch of partitions that must move.
func (t *term) revokeMore() {
	t.revokes.off()
	l := local{planned: t.planning.planned(), acting: t.acts(), leaving: t.leaving()}
	d := decide(t.m.inventory, func(*entry) partitionView { return partitionView{later: true} }, t.facts(l))
	t.revokeAll(d.revoke)
}

// revokeAll revokes the given partitions. Partitions that move are revoked in batches of half as many as one commit
// could release, because each of them is without work until its whole batch has moved. If the batch is full, the next
// one follows once these partitions were released, or after lease/50 if some work does not return.
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

// spareTime delays the next batch by twice the time that the release took, so that other members have time to claim the
// partitions.
func (t *term) spareTime(released time.Duration) {
	if t.revokes.on {
		t.revokes.set(t.m.config.Clock, 2*released)
	}
}
