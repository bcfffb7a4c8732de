package elect

import (
	"cmp"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// lockHistory is what a candidate keeps of one lock between looks.
type lockHistory struct {
	token  table.Token        // in the lock row when it was seen last,
	at     time.Time          // when that was
	holder table.Token        // the holder of the lease record
	record *table.LeaseRecord // nil: none was read

	// assumedLease is the lease of the last holder seen, until something shows that its term is over. Rows that vanish
	// under a holder do not end its term before its deadline.
	assumedLease time.Duration
	absent       time.Time // since when, by Spanner's clock, the lock row is known to be gone
	orphanLeases map[table.Token]table.LeaseRecord
	taken        bool          // nobody had given the lock back when its row was seen last
	pace         time.Duration // the lease of the last holder; 0: none was seen
	last         time.Time     // the last heartbeat of a holder, or its release, by Spanner's clock

	leaving table.Token // of the holder that was seen to be leaving
	marked  Instant     // when it was last seen not to be leaving
	looked  Instant     // when the lock was last seen
}

// rules are the candidate's settings for judging a lock.
type rules struct {
	lease    time.Duration // its own
	delay    time.Duration
	reclaim  bool
	id       string
	own      table.Token   // of its last term, which is over
	unkept   table.Token   // the same, if it expired because heartbeats failed: others may have the next
	yieldFor time.Duration // how long it then lets others go first

	rank int // how far its priority is below the highest
}

// learn takes in what was observed.
func (h *lockHistory) learn(o table.Observation, r rules) {
	h.token, h.at = o.Token, o.At
	if !o.Exists {
		h.miss(o, r)
		return
	}
	h.absent, h.orphanLeases = time.Time{}, nil
	h.taken = !o.Heartbeat.IsZero() || o.Writer != "" // a claim that was withdrawn is no release
	if o.Confirmed() {
		h.last = o.Heartbeat
	} else if !h.taken {
		h.last = o.ReleasedAt()
	}
	switch {
	case o.Heartbeat.IsZero():
		h.assumedLease = 0
	case !o.Confirmed():
		h.assumedLease = max(h.assumedLease, r.lease) // a bare claim does not show that the term before it is over
	case o.LeaseRecord == nil && h.leaseRecordOf(o.Token) == nil:
		h.assumedLease = r.lease // stands in for a lease record that can't be read, or was deleted
		h.assumeOrphans(o, r)
	case o.LeaseRecord == nil:
		h.assumedLease = h.record.Lease
	default:
		h.holder, h.record, h.assumedLease, h.pace = o.Token, o.LeaseRecord, o.LeaseRecord.Lease, o.LeaseRecord.Lease
	}
}

// miss notes that the lock has no row. Its absence counts from when it was first seen, with these orphan leases: a
// holder can't extend its lease without the lock row, but may not know yet.
func (h *lockHistory) miss(o table.Observation, r rules) {
	if h.absent.IsZero() || !h.knows(o.OrphanLeases) {
		h.absent, h.orphanLeases = o.At, o.OrphanLeases
	}
	h.assumeOrphans(o, r)
}

func (h *lockHistory) knows(orphanLeases map[table.Token]table.LeaseRecord) bool {
	for token := range orphanLeases {
		if _, known := h.orphanLeases[token]; !known {
			return false
		}
	}
	return true
}

// assumeOrphans takes every orphan lease but the candidate's own for a holder's.
func (h *lockHistory) assumeOrphans(o table.Observation, r rules) {
	for token, p := range o.OrphanLeases {
		if token != r.own {
			h.assumedLease = max(h.assumedLease, p.Lease)
		}
	}
}

// leaseRecordOf returns the lease record of token's holder, if it was read.
func (h *lockHistory) leaseRecordOf(token table.Token) *table.LeaseRecord {
	if h.holder != token {
		return nil
	}
	return h.record
}

// freeIn returns how long after an observation, which was learned, the lock can be claimed: the heart of the protocol.
// It changes nothing.
func (h *lockHistory) freeIn(o table.Observation, r rules) time.Duration {
	switch {
	case !o.Exists && h.assumedLease == 0:
		return h.absent.Sub(o.At) // nobody had it, or its last holder gave it back
	case !o.Exists:
		return h.absent.Add(h.assumedLease + r.delay + h.priorityDelay(r)).Sub(o.At)
	case o.Heartbeat.IsZero():
		return min(o.ReleasedAt().Add(h.priorityDelay(r)).Sub(o.At), h.priorityDelay(r))
	case r.unkept != 0 && o.Token == r.unkept:
		return o.Heartbeat.Add(h.assumedLease + r.delay + h.priorityDelay(r) + r.yieldFor).Sub(o.At)
	case r.reclaim && o.Holder() == r.id:
		return 0
	case o.Token == r.own && r.own != 0 && r.delay == 0:
		return 0
	case !o.Confirmed():
		return o.Heartbeat.Add(r.lease).Sub(o.At) // a bare claim has no lease record
	}
	return o.Heartbeat.Add(h.assumedLease + r.delay + h.priorityDelay(r)).Sub(o.At)
}

// priorityDelay is how long the candidate lets higher priorities go first: up to lease/50 (1 s at most), by the last
// holder's lease. By their own leases, a high priority with a long lease would come after a low priority with a short
// one.
func (h *lockHistory) priorityDelay(r rules) time.Duration {
	return min(h.paceOr(r.lease)/50, longestSpread) * time.Duration(r.rank) / table.MaxRank
}

// paceOr returns the last holder's lease, which all candidates know, or the candidate's own if it has seen no holder.
func (h *lockHistory) paceOr(own time.Duration) time.Duration { return cmp.Or(h.pace, own) }

// notReleased tells a lock that was given back, or never held, from one whose last holder may still be at work. A bare
// claim counts as not released, because the holder that it superseded is not known. So does a row that has vanished.
func (h *lockHistory) notReleased(o table.Observation) bool {
	return h.taken || len(o.OrphanLeases) > 0
}

// learnLeaving notes whether the holder is leaving, by a look that began then.
func (h *lockHistory) learnLeaving(o table.Observation, began Instant) {
	if o.Leaving() && h.leaving != o.Token {
		h.leaving, h.marked = o.Token, h.looked
		if h.looked == (Instant{}) {
			h.marked = began
		}
	}
	h.looked = began
}
