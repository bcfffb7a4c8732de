package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// This file has the requests that claim, release and reconcile partitions, and the handling of their replies.

// claim queues claims of free partitions, in batches. Each suspect partition is claimed in its own commit.
func (t *term) claim(rows []table.Observation) {
	var together []table.Observation
	for _, o := range rows {
		e := t.entry(o)
		e.claim(t.looks.number)
		if e.suspect.since != (elect.Instant{}) {
			t.commit([]table.Observation{o}, t.claimOne, t.claimEnded)
		} else {
			together = append(together, o)
		}
	}
	for chunk := range slices.Chunk(together, t.m.config.Batch) {
		t.commit(chunk, t.claimOne, t.claimEnded)
	}
}

// reconcile frees partitions whose rows name this member although it neither acts on them nor wants them.
func (t *term) reconcile(rows []table.Observation) {
	rows = slices.DeleteFunc(rows, func(o table.Observation) bool { return t.reconciling[t.entry(o)] })
	for chunk := range slices.Chunk(rows, t.m.config.Batch) {
		for _, o := range chunk {
			t.reconciling[t.entry(o)] = true
		}
		t.commit(chunk, t.reconcileOne, t.reconcileEnded)
	}
}

func (t *term) entry(o table.Observation) *entry { return t.m.inventory.byLock[o.Name] }

func (t *term) commit(rows []table.Observation, send func(context.Context, *commit) (result, error), done func(*commit, result, error)) {
	c := &commit{rows: slices.Clone(rows), send: send, done: done}
	slices.SortFunc(c.rows, func(a, b table.Observation) int { return cmp.Compare(a.Name, b.Name) })
	for _, o := range c.rows {
		c.entries = append(c.entries, t.entry(o))
	}
	t.exec.add(c)
}

// stillWanted reports whether an entry of a waiting commit must still be claimed or reconciled.
func (t *term) stillWanted(c *commit, e *entry) bool {
	if t.reconciling[e] {
		return true
	}
	if e.target && !e.paused && t.acts() && !t.leaving() && e.busy == nil {
		e.doubted = true // the client may retry internally, so a commit can be refused because an earlier attempt was applied
		return true
	}
	e.leftOut(t.looks.number)
	return false
}

// claimOne claims and confirms the partitions of one commit. It does not run in the loop.
func (t *term) claimOne(ctx context.Context, c *commit) (r result, err error) {
	defer t.m.config.Count()()
	var names []string
	clock, lease := t.m.config.Clock, t.m.config.Lease
	r.sent = clock.Now()
	err = insist(ctx, clock, lease, t.exec.commitLimit(), func(ctx context.Context) (err error) {
		r.token, names, err = t.m.table.ClaimPartitions(ctx, t.own, c.rows...)
		return err
	})
	if err != nil {
		return result{}, fmt.Errorf("claim: %w", err)
	}
	err = insist(ctx, clock, lease, t.exec.commitLimit(), func(ctx context.Context) (err error) {
		r.confirmed, err = t.m.table.ConfirmPartitions(ctx, t.own, table.LeaseRecord{Lease: lease}, r.token, names...)
		return err
	})
	if err != nil {
		return result{}, fmt.Errorf("confirm: %w", err)
	}
	return r, nil
}

// claimEnded handles the outcome of a claim.
func (t *term) claimEnded(c *commit, r result, err error) {
	if err != nil {
		t.commitFailed(c, err, t.exec.split)
		return
	}
	t.succeeded()
	t.acked = r.sent
	confirmed := map[string]bool{}
	for _, name := range r.confirmed {
		confirmed[name] = true
	}
	for _, e := range c.entries {
		if confirmed[e.lock] {
			t.begin(e, r.token)
			continue
		}
		e.leftOut(t.looks.number) // another member was first
		t.soon(t.m.config.Clock.Random(t.m.config.Lease/50 + 1))
	}
	t.looks.changed = t.m.config.Clock.Now()
	t.m.metrics.moved(len(r.confirmed), "claimed")
	t.m.log.Debug("partitions claimed", "n", len(r.confirmed), "token", r.token)
}

// begin starts to act on a partition. If the member should no longer have the partition, begin revokes it instead.
func (t *term) begin(e *entry, token table.Token) {
	a := &assignment{entry: e, in: t, token: token}
	a.ctx, a.cancel = context.WithCancelCause(t.lease.Context())
	a.pause.Max = t.m.config.Lease
	e.hold(a, t.looks.number)
	t.m.inventory.trust(e)
	switch {
	case !t.acts() || t.leaving() || !e.target:
		t.revoke(e, cmp.Or(context.Cause(a.ctx), ErrMoved))
		return
	case e.paused:
		t.revoke(e, ErrPaused)
		return
	}
	e.acted.Store(a)
	t.m.inventory.held.Add(1)
	t.m.emitPartition(spindle.PartitionAssigned, a, nil)
	t.work(a)
}

// work runs the program's work on a partition in its own goroutine.
func (t *term) work(a *assignment) {
	if t.m.config.Work == nil {
		return
	}
	a.busy, a.began = a, t.m.config.Clock.Now()
	p := a.partition()
	go func() {
		err := t.m.config.Work(a.ctx, p.name, p.fence)
		t.m.returned.put(outcome{of: a, err: err})
	}()
}

// revoke ends the work on a partition. The partition is released once the work has returned.
func (t *term) revoke(e *entry, reason error) {
	t.endWork(e, reason)
	if e.busy == nil {
		t.releases.sooner(t.m.config.Clock, 0)
	}
}

func (t *term) endWork(e *entry, reason error) {
	acted := e.acted.Load() == e.assigned
	e.revoke(reason, t.looks.number)
	if acted {
		t.m.emitPartition(spindle.PartitionRevoked, e.assigned, reason)
	}
}

// lose revokes partitions whose lease rows were deleted by hand.
func (t *term) lose(lost []*entry) {
	if len(lost) == 0 {
		return
	}
	first := lost[0]
	t.m.log.Warn("gave up partitions because their lease rows are missing", "partitions", len(lost), "first", first.name, "token", first.assigned.token)
	for _, e := range lost {
		e.assigned.lost = true
		t.revoke(e, spindle.ErrSuperseded)
	}
}

// release sends one batch of releases for revoked partitions whose work has returned. It sends only one batch at a
// time, so that the loop can do something else in between, such as a poll that is due. The member never acts on the
// released tokens again, even if the release fails.
func (t *term) release() {
	t.releases.off()
	if t.leaving() && !t.leave.marked {
		t.mark()
	}
	if t.leave.pending {
		return // mark releases them later; without the announcement, the plan would still assign the partitions to this member
	}
	var refs []table.LeaseRef
	var released []*entry
	for _, e := range t.m.inventory.all {
		switch {
		case e.state != revoking || e.busy != nil && e.busy == e.assigned && !e.assigned.let:
		case e.assigned.lost:
			e.doubt(t.looks.number)
			t.soon(0)
		case len(refs) == t.m.config.Batch:
			t.releases.set(t.m.config.Clock, 0)
		default:
			refs = append(refs, table.LeaseRef{Name: e.lock, Token: e.assigned.token})
			released = append(released, e)
		}
	}
	if refs == nil {
		return
	}
	for _, e := range released {
		e.release(t.looks.number)
	}
	began := t.m.config.Clock.Now()
	t.exec.do(t.requestLimit(), func(ctx context.Context) error { return t.m.table.ReleasePartitions(ctx, refs...) }, func(err error) {
		t.releaseEnded(released, t.m.config.Clock.Now().Since(began), err)
	})
}

func (t *term) releaseEnded(released []*entry, took time.Duration, err error) {
	if err != nil {
		for _, e := range released {
			e.doubt(t.looks.number)
		}
		t.m.problems.Note(fmt.Errorf("release: %w", err))
		t.progress.failed(t.m.config.Clock.Now(), fmt.Errorf("release: %w", err), false, released...)
		t.revokes.off() // revoke nothing more until the next poll
		t.soon(t.redo.Pause(t.m.config.Clock))
		return
	}
	for _, e := range released {
		e.clear(t.looks.number)
	}
	t.succeeded()
	t.showPaused(nil)
	t.spareTime(took)
	t.m.metrics.moved(len(released), "released")
	t.m.log.Debug("partitions released", "n", len(released))
}

func (t *term) reconcileOne(ctx context.Context, c *commit) (result, error) {
	err := t.m.table.ReconcilePartitions(ctx, t.own, c.rows...)
	if err != nil {
		err = fmt.Errorf("reconcile: %w", err)
	}
	return result{}, err
}

func (t *term) reconcileEnded(c *commit, _ result, err error) {
	for _, e := range c.entries {
		delete(t.reconciling, e)
		e.changed = t.looks.number // a poll in progress may read older rows
	}
	switch {
	case err == nil:
		t.succeeded()
		t.soon(t.redo.Pause(t.m.config.Clock)) // confirm that they are free
		return
	case elect.First(err) && !errors.Is(err, table.ErrAborted):
		t.soon(t.redo.Pause(t.m.config.Clock))
		return
	}
	t.commitFailed(c, err, func(c *commit, after time.Duration) {
		for _, e := range c.entries {
			t.reconciling[e] = true
		}
		t.exec.split(c, after)
	})
}

// commitFailed handles the failure of a commit. If another member changed the rows first, the partitions are dropped
// until the next poll. Otherwise, the two halves of the commit are queued. A partition that was alone in its commit
// becomes suspect.
func (t *term) commitFailed(c *commit, err error, split func(*commit, time.Duration)) {
	now, lease := t.m.config.Clock.Now(), t.m.config.Lease
	aborted := errors.Is(err, table.ErrAborted)
	t.progress.failed(now, err, aborted || elect.First(err) || len(c.entries) == 1, c.entries...)
	t.exec.slow(t.progress.sick())
	switch {
	case aborted && len(c.entries) > 1:
		t.exec.oneAtATime()
		split(c, lease*6/100)
	case elect.First(err) && !aborted:
		for _, e := range c.entries {
			e.leftOut(t.looks.number)
		}
		t.soon(max(t.m.config.Clock.Random(lease/50+1), t.retryPause(now)))
	case len(c.entries) > 1:
		t.m.problems.Note(err)
		split(c, 0)
	default:
		t.m.problems.Note(err)
		e := c.entries[0]
		t.m.inventory.suspect(e, t.m.config.Clock, lease, err)
		e.doubt(t.looks.number)
	}
}

// retryPause returns the pause before another attempt. It is zero at first, and grows once nothing has succeeded for a
// quarter of the lease.
func (t *term) retryPause(now elect.Instant) time.Duration {
	if t.progress.lasts(now) < t.m.config.Lease/4 {
		return 0
	}
	return t.redo.Pause(t.m.config.Clock)
}

// succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (t *term) succeeded() {
	t.progress.succeeded()
	t.exec.slow(false)
	t.redo.Reset()
}
