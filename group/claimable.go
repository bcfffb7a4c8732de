package group

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// never is the wait for a partition that another member has: until the member releases it, or is over.
const never = time.Duration(math.MaxInt64)

// history is what a member keeps of a partition between looks, by Spanner's clock.
type history struct {
	assumed time.Duration // the lease of the last holder seen; 0: there was none
	absent  time.Time     // since when it is known to have no row
	plain   table.Token   // of a plain lock with its name, once that was logged
}

// learn takes in what was observed. A member whose rows vanish may still act until its deadline: its lease is
// remembered.
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

// judge says when a partition can be claimed, by one snapshot of the group and by its history.
type judge struct {
	snapshot table.GroupSnapshot
	own      table.LeaseRef                   // the member that asks
	lease    time.Duration                    // its own
	missing  map[table.LeaseRef]time.Time     // since when the rows of these members are missing
	leases   map[table.LeaseRef]time.Duration // of members seen, for those whose rows are gone
}

// claimableIn returns how long after the snapshot a partition, which was learned, can be claimed. It assumes that the
// asking member neither acts on it nor has a request for it under way. If the lock row alone does not tell, it asks for
// the lease rows. It changes nothing.
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
		return j.freeWith(with, j.lease), false // somebody deleted its lease row
	case o.LeaseRecord == nil:
		return j.left(o.Heartbeat.Add(j.lease)), false
	}
	return j.freeBy(*o.LeaseRecord, o.Heartbeat), false
}

// withoutRow judges by the remaining lease rows, because somebody has deleted the lock row by hand.
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

// freeBy judges by a lease record. For a lock that is no partition, the lease counts from a heartbeat.
func (j judge) freeBy(p table.LeaseRecord, heartbeat time.Time) time.Duration {
	if with, is := table.MemberOf(p.With); is {
		return j.freeWith(with, p.Lease)
	}
	return j.left(heartbeat.Add(p.Lease))
}

// decided reports whether a member is known to be over, or known to be there.
func (j judge) decided(with table.LeaseRef) bool {
	return j.snapshot.Unreadable[with.Name] != nil || j.snapshot.Members[with.Name].Exists
}

// freeWith judges by the member that has the partition: free once the member's row says that it is over. If the row is
// missing, somebody has deleted it, and the member may not know yet: it acts no longer than its lease, if that is
// known, otherwise no longer than this member would.
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

// over reports whether a member's term has ended for good, by its row.
func over(o table.Observation, token table.Token) bool {
	return o.Heartbeat.IsZero() || o.Token != token
}

func (j judge) left(until time.Time) time.Duration { return max(until.Sub(j.snapshot.At), 0) }

// names reports whether rows say that this member has the partition.
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

// lockRow returns what the lock row alone says.
func lockRow(o table.PartitionRow) table.PartitionRow {
	o.LeaseRecord, o.OrphanLeases, o.LeasesRead = nil, nil, false
	return o
}
