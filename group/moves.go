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
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// moves is the part of a term that claims, revokes and releases partitions. It also reconciles partitions whose rows
// name this member.
//
// If thousands of partitions have to move, they move in batches. A partition is then without work only while its own
// batch moves.
type moves struct {
	t        *term
	revokes  alarm         // when to revoke the next batch; off: after the next poll
	releases alarm         // when to send the next release
	redo     elect.Backoff // the pauses of pollAgain

	queue   []*commit     // commits that claim or reconcile partitions, and wait for a lane
	under   int           // the number of such commits in progress
	single  bool          // one commit at a time, with pauses, because nothing succeeds
	pause   elect.Backoff // the length of these pauses
	paused  elect.Pause   // until the next commit
	crowded elect.Pause   // until commits may run in parallel again, after one was aborted by a conflict
}

func (m *moves) claimed(c *commit, r result) {
	t := m.t
	m.succeeded()
	t.conduct.Heard(r.sent)
	for _, e := range c.entries(t.m.inventory) {
		if slices.Contains(r.confirmed, e.Lock) {
			m.begin(e, r.token)
			continue
		}
		t.m.inventory.LeftOut(e) // another member was first
		t.polls.aside()
	}
	t.polls.changed = t.polls.clock.Now()
	t.m.voice.metrics.moved(len(r.confirmed), "claimed")
	t.m.voice.log.Debug("partitions claimed", "n", len(r.confirmed), "token", r.token)
}

// begin starts to act on a partition. If the member should no longer have the partition, begin revokes it instead.
func (m *moves) begin(e *share.Entry, token table.Token) {
	t := m.t
	t.m.inventory.Hold(e, token, t.polls.lease)
	if !t.acts() || t.leaving() || !e.Wanted() {
		m.revoke(e, m.why(e))
	} else {
		t.beginWork(e)
	}
}

// why returns the reason to revoke a partition that this member should no longer have.
func (m *moves) why(e *share.Entry) error {
	switch {
	case !m.t.acts():
		return cmp.Or(context.Cause(m.t.lease.Context()), ErrMoved)
	case e.Paused != share.Running:
		return ErrPaused
	}
	return ErrMoved
}

// revoke cancels the work on a partition. The partition is released once the work has returned.
func (m *moves) revoke(e *share.Entry, reason error) {
	m.t.endWork(e, reason)
	if e.Busy == nil {
		m.releases.sooner(m.t.polls.clock, 0)
	}
}

// revokeMore revokes the next batch of partitions that must move.
func (m *moves) revokeMore() {
	m.revokes.off()
	m.revokeAll(m.t.facts().ToRevoke())
}

// revokeAll revokes the given partitions. If they are a full batch, the next batch follows after lease/50. If a release
// succeeds before then, the method released sets a new time.
func (m *moves) revokeAll(move []*share.Entry) {
	for _, e := range move {
		m.revoke(e, m.why(e))
	}
	if len(move) >= m.t.facts().Many() {
		m.revokes.set(m.t.polls.clock, m.t.polls.lease/50)
	}
}

// lose revokes partitions whose lease rows were deleted by hand.
func (m *moves) lose(lost ...*share.Entry) {
	if len(lost) == 0 {
		return
	}
	m.t.m.voice.log.Warn("gave up partitions because their lease rows are missing", "partitions", len(lost), "first", lost[0].Name, "token", lost[0].Assigned.Token)
	for _, e := range lost {
		e.Assigned.Lost = true
		m.revoke(e, spindle.ErrSuperseded)
	}
}

// release sends one batch of releases for revoked partitions whose work has returned or that were let go. It sends only
// one batch at a time, so that the loop can do something else in between, such as a poll that is due. The member never
// acts under the released tokens again, even if the release fails.
func (m *moves) release() {
	t := m.t
	m.releases.off()
	if t.leaving() && !t.leave.marked {
		t.upkeep.mark()
	}
	if t.leave.pending {
		return // mark schedules the release; before the announcement, the plan would still assign the partitions to this member
	}
	released, more, lost := t.m.inventory.Release(t.send.config.Batch)
	if lost {
		t.polls.decide(0)
	}
	if more {
		m.releases.set(t.polls.clock, 0)
	}
	if released == nil {
		return
	}
	var refs []table.LeaseRef
	for _, e := range released {
		refs = append(refs, e.Ref())
	}
	began := t.polls.clock.Now()
	do(t.send, t.send.limit(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.send.table.ReleasePartitions(ctx, refs...)
	}, func(_ struct{}, err error) {
		m.released(released, t.polls.clock.Now().Since(began), err)
	})
}

// released handles the reply to a release that took the given time. The next batch of partitions is revoked after twice
// that time, so that other members can first claim the partitions that were just released. A partition that this member
// should have itself, for example because the program has resumed it in the meantime, is claimed again.
func (m *moves) released(released []*share.Entry, took time.Duration, err error) {
	t := m.t
	if err != nil {
		t.m.inventory.Doubt(released...)
		err = fmt.Errorf("release: %w", err)
		t.m.voice.problems.Note(err)
		t.conduct.Failed(t.polls.clock.Now(), err, false, released...)
		m.revokes.off() // revoke nothing more until the next poll
		m.pollAgain()
		return
	}
	t.m.inventory.Clear(released...)
	for _, e := range t.facts().Wanted() {
		if slices.Contains(released, e) {
			t.polls.decide(e.Backoff(t.polls.clock.Now()))
		}
	}
	m.succeeded()
	t.upkeep.showPaused(nil)
	if m.revokes.on {
		m.revokes.set(t.polls.clock, 2*took)
	}
	t.m.voice.metrics.moved(len(released), "released")
	t.m.voice.log.Debug("partitions released", "n", len(released))
}

// reconciled handles the reply to a commit that frees partitions.
func (m *moves) reconciled(c *commit, err error) {
	m.t.m.inventory.Doubt(c.entries(m.t.m.inventory)...)
	switch {
	case err == nil:
		m.succeeded()
		m.pollAgain() // check that they are free
	case elect.First(err) && !errors.Is(err, table.ErrAborted):
		m.pollAgain()
	default:
		m.failed(c, err)
	}
}

// failed handles the failure of a commit. If another member changed the rows first, the partitions are left alone until
// the next poll. Otherwise, failed queues the two halves of the commit. A partition that was alone in its commit
// becomes suspect.
func (m *moves) failed(c *commit, err error) {
	t := m.t
	now, lease, entries := t.polls.clock.Now(), t.polls.lease, c.entries(t.m.inventory)
	aborted, first := errors.Is(err, table.ErrAborted), elect.First(err)
	t.conduct.Failed(now, err, aborted || first || len(entries) == 1, entries...)
	m.slow(t.conduct.Sick())
	switch {
	case aborted && len(entries) > 1:
		m.crowded = elect.PauseFor(t.polls.clock, lease/2)
		m.split(c, t.send.repeats()*6/5)
	case first && !aborted:
		for _, e := range entries {
			t.m.inventory.LeftOut(e)
		}
		if now.Since(t.conduct.Since) < lease/4 {
			t.polls.aside()
		} else {
			m.pollAgain() // nothing has succeeded for a while
		}
	case len(entries) > 1:
		t.m.voice.problems.Note(err)
		m.split(c, 0)
	default:
		t.m.voice.problems.Note(err)
		entries[0].Suspect.Fail(now, lease, err)
		t.m.inventory.Doubt(entries...)
	}
}

// idle reports whether no commit that claims or reconciles partitions is waiting or in progress.
func (m *moves) idle() bool { return len(m.queue)+m.under == 0 }

// pollAgain schedules a poll after a request that has changed or may have changed rows. The pause before the poll grows
// until something succeeds.
func (m *moves) pollAgain() { m.t.polls.decide(m.redo.Pause(m.t.polls.clock)) }

// succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (m *moves) succeeded() {
	m.t.conduct.Succeeded()
	m.slow(false)
	m.redo.Reset()
}
