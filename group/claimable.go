package group

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// never is the wait for a partition held by another member. It has no known end, because the partition becomes free
// only when that member releases it or its term ends.
const never = time.Duration(math.MaxInt64)

// history is what a member remembers about a partition from one look to the next. Times are by Spanner's clock.
type history struct {
	assumed time.Duration // the lease of the last known holder; 0: none
	absent  time.Time     // when the partition was first seen to have no row
	plain   table.Token   // of the last plain lock that was logged for having the partition's name
}

// learn updates the history with an observation. It remembers the lease of the last holder, because a holder whose rows
// are deleted may continue to act until its deadline.
func (h *history) learn(o table.PartitionRow, lease time.Duration) {
	switch {
	case o.Exists && o.Heartbeat.IsZero():
		h.assumed, h.absent = 0, time.Time{}
	case o.Exists:
		h.assumed, h.absent = lease, time.Time{}
	case h.absent.IsZero():
		h.absent = o.At
	}
}

// judge determines when a partition can be claimed, from one snapshot of the group and the partition's history.
type judge struct {
	snapshot table.GroupSnapshot
	own      table.LeaseRef                   // the member on whose behalf it judges
	lease    time.Duration                    // of that member
	missing  map[table.LeaseRef]time.Time     // when the rows of these members were first missing
	leases   map[table.LeaseRef]time.Duration // of all members seen, for use if their rows vanish
}

// claimableIn returns how long after the snapshot a partition can be claimed. The history must already include o. The
// judging member must neither act on the partition nor have a request for it in progress. If the lock row alone is not
// enough to decide, claimableIn returns never and sets leases, which asks the caller to read the lease rows. It has no
// side effects.
func (j judge) claimableIn(o table.PartitionRow, h history) (wait time.Duration, leases bool) {
	with, is := table.MemberOf(o.Writer)
	switch {
	case !o.Exists:
		return j.withoutRow(o, h)
	case o.Heartbeat.IsZero():
		return 0, false // released
	case errors.Is(j.snapshot.Unreadable[o.Name], table.ErrNewer):
		return never, false
	case !o.Confirmed(): // a bare claim has no lease record
		return min(j.freeWith(with, never), j.left(o.Heartbeat.Add(j.lease))), false
	case is && j.decided(with):
		return j.freeWith(with, never), false
	case !o.LeasesRead:
		return never, true
	case j.snapshot.Unreadable[o.Name] != nil:
		return never, false
	case o.LeaseRecord == nil && is:
		return j.freeWith(with, j.lease), false // the lease row was deleted by hand
	case o.LeaseRecord == nil:
		return j.left(o.Heartbeat.Add(j.lease)), false
	}
	return j.freeBy(*o.LeaseRecord, o.Heartbeat), false
}

// withoutRow handles a partition that has no lock row, because it was never claimed or because the row was deleted by
// hand. It decides by the remaining lease rows and by the history.
func (j judge) withoutRow(o table.PartitionRow, h history) (wait time.Duration, leases bool) {
	if !o.LeasesRead {
		return never, true
	}
	if j.snapshot.Unreadable[o.Name] != nil {
		return never, false
	}
	if h.assumed > 0 && len(o.OrphanLeases) == 0 {
		return j.left(h.absent.Add(h.assumed)), false
	}
	for _, p := range o.OrphanLeases {
		wait = max(wait, j.freeBy(p, h.absent))
	}
	return wait, false
}

// freeBy returns the wait that a lease record implies. If the record belongs to a plain lock rather than a partition,
// the lease is counted from heartbeat.
func (j judge) freeBy(p table.LeaseRecord, heartbeat time.Time) time.Duration {
	if with, is := table.MemberOf(p.With); is {
		return j.freeWith(with, p.Lease)
	}
	return j.left(heartbeat.Add(p.Lease))
}

// decided reports whether the member's lock row is enough to tell whether the member's term has ended.
func (j judge) decided(with table.LeaseRef) bool {
	return j.snapshot.Unreadable[with.Name] != nil || j.snapshot.Members[with.Name].Exists
}

// freeWith returns the wait for a partition that the given member has. The partition is free once the member's lock row
// shows that its term has ended. If that row was deleted by hand, the member may not have noticed, so freeWith waits
// from the time that the row was first missing for the longest of leases, the member's lease as last seen, and the
// judging member's own. If leases is never, a missing row frees nothing.
func (j judge) freeWith(with table.LeaseRef, leases time.Duration) time.Duration {
	o := j.snapshot.Members[with.Name]
	switch since, missing := j.missing[with]; {
	case with == j.own:
		return 0
	case o.Exists && over(o, with.Token):
		return 0
	case !o.Exists && missing && leases != never:
		return j.left(since.Add(max(leases, j.leases[with], j.lease)))
	}
	return never
}

// over reports whether the lock row o shows that the term under token has ended for good.
func over(o table.Observation, token table.Token) bool {
	return o.Heartbeat.IsZero() || o.Token != token
}

func (j judge) left(until time.Time) time.Duration { return max(until.Sub(j.snapshot.At), 0) }

// names reports whether the rows assign the partition to the judging member.
func (j judge) names(o table.PartitionRow) bool {
	return slices.Contains(named(o), j.own) && !(o.Exists && o.Heartbeat.IsZero())
}

// named returns the members that a partition's rows name.
func named(o table.PartitionRow) (refs []table.LeaseRef) {
	keys := []string{o.Writer}
	if o.LeaseRecord != nil {
		keys = append(keys, o.LeaseRecord.With)
	}
	for _, p := range o.OrphanLeases {
		keys = append(keys, p.With)
	}
	for _, key := range keys {
		if h, ok := table.MemberOf(key); ok {
			refs = append(refs, h)
		}
	}
	return refs
}

// lockRow returns o without anything that was read from lease rows.
func lockRow(o table.PartitionRow) table.PartitionRow {
	o.LeaseRecord, o.OrphanLeases, o.LeasesRead = nil, nil, false
	return o
}
