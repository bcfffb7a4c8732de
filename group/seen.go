package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// seen handles the result of a poll. If the poll did not read the members, or if the plan has changed and the poll did
// not read its body, seen only checks whether this member has lost any partitions.
func (t *term) seen(s table.GroupSnapshot, q table.GroupQuery) {
	if s.Members != nil {
		t.learn(s)
	}
	before := t.planning
	t.planning = t.planning.After(s, q.Body || q.All)
	if t.planning.Newer != nil {
		t.m.problems.Note(fmt.Errorf("the group's plan can't be read: %w; partitions do not move until this program is updated", t.planning.Newer))
	}
	t.soon(t.poll(s))
	switch {
	case t.planning.Stale: // the next poll reads the body, and the members with it
		t.soon(0)
		t.lose(t.decision(s, local{}).lose)
		return
	case s.Members == nil:
		t.looks.skip--
		t.lose(t.decision(s, local{}).lose)
		return
	}
	if errors.Is(t.leave.why, errUseless) && t.looks.members <= 1 { // no other member could take over the partitions
		t.leave.limit.sooner(t.m.config.Clock, t.m.config.Lease)
	}
	t.evict(t.m.memory.Dead(s, t.own.Name))
	t.assign(before)
	t.publish(s, q.All)
	t.conclude(s)
	if t.looks.skip = 0; len(t.wanted()) == 0 {
		t.looks.skip = (t.looks.members - 1) / manyMembers
	}
}

// decision returns the actions that follow from a poll.
func (t *term) decision(s table.GroupSnapshot, l local) decisions {
	j := t.judge(s)
	window := map[*entry]bool{}
	for _, e := range t.window() {
		window[e] = true
	}
	l.acting, l.leaving = t.acts(), t.leaving()
	return decide(t.m.inventory, func(e *entry) partitionView { return t.partitionView(j, e, window[e]) }, t.facts(l))
}

// conclude acts on a poll that has read the members and the current plan.
func (t *term) conclude(s table.GroupSnapshot) {
	wanted, window := len(t.wanted()), len(t.window())
	d := t.decision(s, local{planned: t.planning.Planned()})
	if t.progress.since == (elect.Instant{}) && len(s.Unreadable) == 0 && t.planning.Newer == nil {
		t.m.problems.Clear()
	}
	for _, e := range d.doubt {
		e.doubt(t.looks.number)
	}
	for _, e := range d.clear {
		e.clear(t.looks.number)
	}
	for _, e := range d.illegible {
		t.m.inventory.illegible(e, t.m.config.Clock.Now(), s.Unreadable[e.lock])
	}
	t.m.inventory.absolve(d.legible, d.taken)
	t.progress.absolve(d.taken)
	t.looks.open = len(d.claim) >= window
	t.lose(d.lose)
	t.revokeAll(d.revoke)
	if d.again { // claims and reconciliations must follow from one snapshot
		t.soon(0)
		return
	}
	if len(d.claim)+len(d.reconcile)+len(t.exec.queue) == 0 && t.exec.under == 0 && !t.owes() {
		t.succeeded() // no failed step has to be retried
	}
	t.reconcile(d.reconcile)
	t.claim(d.claim)
	t.showPaused(s.Members)
	if d.next != noLook {
		t.soon(d.next + t.m.config.Clock.Random(t.m.config.Lease/50+1))
	}
	if d.awaits {
		t.soon(t.looks.patient())
	}
	if wanted > window { // continue with the next window, immediately if this one had anything to claim
		t.looks.turn += 2 * t.m.config.Batch
		if len(d.claim) > 0 {
			t.soon(0)
		}
	}
}

// owes reports whether any partition still has to be claimed or freed after a failure.
func (t *term) owes() bool {
	return slices.ContainsFunc(t.m.inventory.all, func(e *entry) bool {
		return e.suspect.since != (elect.Instant{}) && !e.done()
	})
}

// facts returns the inputs of a decision other than the rows that the poll has read.
func (t *term) facts(l local) facts {
	f := facts{now: t.m.config.Clock.Now(), local: l}
	if t.revokes.wait(t.m.config.Clock) == 0 {
		f.room = max(t.m.config.Batch/2, 1)
	}
	return f
}

// partitionView summarizes what the last poll has read about a partition. If the partition's state has changed since
// the poll was sent, the rows may be out of date, so the partition counts as not read.
func (t *term) partitionView(j judge, e *entry, inWindow bool) (x partitionView) {
	if e.state == held {
		valid, read := j.snapshot.LeaseExists[table.LeaseRef{Name: e.lock, Token: e.assigned.token}]
		return partitionView{gone: read && !valid}
	}
	o, read := j.snapshot.Partitions[e.lock]
	switch {
	case !read || e.changed >= t.looks.number:
		return partitionView{later: !read && !inWindow && e.state == free}
	case t.reconciling[e]:
		return partitionView{read: true, own: true, wait: never, row: o.Observation}
	case e.state == free:
		_, e.leases = j.claimableIn(lockRow(o), e.history)
	default:
		e.leases = true
	}
	if e.leases && !o.LeasesRead {
		return partitionView{}
	}
	x = partitionView{read: true, row: o.Observation, own: j.names(o), unreadable: o.LeasesRead && j.snapshot.Unreadable[e.lock] != nil}
	x.wait, _ = j.claimableIn(o, e.history)
	return x
}

func (t *term) judge(s table.GroupSnapshot) judge {
	return judge{snapshot: s, own: t.own, lease: t.m.config.Lease, memory: t.m.memory}
}

// learn updates the history of the partitions, and what is known about members whose rows are missing.
func (t *term) learn(s table.GroupSnapshot) {
	t.m.memory.Learn(s)
	t.looks.members = plan.Living(s)
	t.m.metrics.members.Store(int64(t.looks.members))
	for lock, o := range s.Partitions {
		e := t.m.inventory.byLock[lock]
		if e == nil {
			continue // in another member's list
		}
		assumed := t.m.config.Lease
		for _, with := range plan.Named(o) {
			assumed = max(assumed, t.m.memory.Leases[with])
		}
		if o.LeaseRecord != nil {
			assumed = max(assumed, o.LeaseRecord.Lease)
		}
		e.history.learn(o, assumed)
	}
	t.warn(s)
	newer := 0
	for name, err := range s.Unreadable {
		if errors.Is(err, table.ErrNewer) {
			newer++
			continue
		}
		t.m.problems.Note(fmt.Errorf("%q: %w", name, err))
	}
	if newer > 0 {
		t.m.problems.Note(fmt.Errorf("%d of the group's rows were %w; this program ignores them until it is updated", newer, table.ErrNewer))
	}
}

// warn logs, once for each term of a plain lock, that the lock has a partition's name.
func (t *term) warn(s table.GroupSnapshot) {
	var plain []table.PartitionRow
	for lock, o := range s.Partitions {
		e := t.m.inventory.byLock[lock]
		if e != nil && o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.With == "" && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease && e.history.plain != o.Token {
			e.history.plain, plain = o.Token, append(plain, o)
		}
	}
	if len(plain) == 0 {
		return
	}
	first := slices.MinFunc(plain, func(a, b table.PartitionRow) int { return cmp.Compare(a.Name, b.Name) })
	t.m.log.Warn("an ordinary lock has the same name as a partition, so no member can work on the partition until that lock is released", "partition", t.m.inventory.byLock[first.Name].name,
		"lock", first.Name, "holder", first.Holder(), "token", first.Token, "partitions", len(plain))
}
