package share

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// never is the wait for a partition that another member owns. The length of this wait is unknown, because it depends on
// when that member releases the partition or loses its term.
const never = time.Duration(math.MaxInt64)

// history is what a member remembers about a partition from one poll to the next. Times are by Spanner's clock.
type history struct {
	assumed time.Duration // the lease of the last known holder; 0: none
	absent  time.Time     // when the partition was first seen without a row
	plain   table.Token   // the token of the last plain lock that was logged because it had the partition's name
}

// learn records what a snapshot shows about a partition. The lease parameter is the longest lease that the current
// owner can have. The history keeps it in case the partition's rows are deleted, because the owner may then continue to
// act until its deadline.
func (h *history) learn(o table.Observation, lease time.Duration) {
	switch {
	case o.Exists && o.Heartbeat.IsZero():
		h.assumed, h.absent = 0, time.Time{}
	case o.Exists:
		h.assumed, h.absent = lease, time.Time{}
	case h.absent.IsZero():
		h.absent = o.At
	}
}

// Judge decides from one snapshot of the group, and from a partition's history, when the partition can be claimed.
type Judge struct {
	Snapshot table.GroupSnapshot
	Own      table.LeaseRef // the judging member
	Memory   *plan.Memory   // of the judging member, in case rows vanish
}

// claimableIn returns how long after the snapshot the partition o can be claimed. The caller must already have passed o
// to h.learn. The judging member must not be acting on the partition, and must have no request for it in progress.
//
// If the answer depends on lease rows that can't be read, claimableIn returns never and the reason.
func (j Judge) claimableIn(o table.Observation, h history) (wait time.Duration, unreadable error) {
	with, is := table.MemberOf(o.Writer)
	member := is && (j.Snapshot.Members[with.Name].Exists || j.Snapshot.Unreadable[with.Name] != nil)
	switch unreadable = j.Snapshot.Unreadable[o.Name]; {
	case !o.Exists:
		return j.withoutRow(o, h, unreadable)
	case o.Heartbeat.IsZero():
		return 0, nil // released
	case member && o.Confirmed() && j.freeWith(with, never) > 0: // the lease record does not matter
		return never, nil
	case errors.Is(unreadable, table.ErrNewer):
		return never, unreadable
	case !o.Confirmed(): // a bare claim has no lease record
		return min(j.freeWith(with, never), j.left(o.Heartbeat.Add(j.Memory.Lease))), nil
	case member:
		return 0, nil
	case unreadable != nil:
		return never, unreadable
	case o.LeaseRecord == nil && is:
		return j.freeWith(with, j.Memory.Lease), nil // the lease row was deleted by hand
	case o.LeaseRecord == nil:
		return j.left(o.Heartbeat.Add(j.Memory.Lease)), nil
	}
	return j.freeBy(*o.LeaseRecord, o.Heartbeat), nil
}

// withoutRow returns the wait for a partition that has no lock row, because it was never claimed or the row was deleted
// by hand. The wait depends on the remaining lease rows and the history.
func (j Judge) withoutRow(o table.Observation, h history, unreadable error) (wait time.Duration, _ error) {
	switch {
	case unreadable != nil:
		return never, unreadable
	case h.assumed > 0 && len(o.OrphanLeases) == 0:
		return j.left(h.absent.Add(h.assumed)), nil
	}
	for _, p := range o.OrphanLeases {
		wait = max(wait, j.freeBy(p, h.absent))
	}
	return wait, nil
}

// freeBy returns how long a partition with the lease record p remains taken. If the record names a member, this depends
// on that member's term. Otherwise, the record belongs to a plain lock, whose lease expires p.Lease after the given
// heartbeat.
func (j Judge) freeBy(p table.LeaseRecord, heartbeat time.Time) time.Duration {
	if with, is := table.MemberOf(p.With); is {
		return j.freeWith(with, p.Lease)
	}
	return j.left(heartbeat.Add(p.Lease))
}

// freeWith returns the wait for a partition that the given member owns. The partition is free as soon as the member's
// lock row shows that the member's term has ended.
//
// If the lock row is missing, it was deleted by hand, and the member may act until its lease expires. The member's
// lease is not known for certain, so freeWith assumes the longest of three: the lease that the caller passes, the last
// known lease of the member, and the judging member's own lease. The wait begins when the row was first found missing.
// If the caller passes never, freeWith returns never for a missing row.
func (j Judge) freeWith(with table.LeaseRef, leases time.Duration) time.Duration {
	o := j.Snapshot.Members[with.Name]
	switch since, missing := j.Memory.Missing[with]; {
	case with == j.Own:
		return 0
	case o.Exists && plan.Over(o, with.Token):
		return 0
	case !o.Exists && missing && leases != never:
		return j.left(since.Add(max(leases, j.Memory.Leases[with], j.Memory.Lease)))
	}
	return never
}

func (j Judge) left(until time.Time) time.Duration { return max(until.Sub(j.Snapshot.At), 0) }

// names reports whether the rows assign the partition to the judging member.
func (j Judge) names(o table.Observation) bool {
	return slices.Contains(plan.Named(o), j.Own) && !(o.Exists && o.Heartbeat.IsZero())
}
