package elect

import (
	"cmp"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// lockHistory is what a candidate remembers about one lock between looks.
type lockHistory struct {
	token  table.Token        // in the lock row at the last look,
	at     time.Time          // and when that look was, by Spanner's clock
	holder table.Token        // the token of the holder that wrote record
	record *table.LeaseRecord // nil if none was read

	// assumedLease is the lease of the last holder seen, until there is evidence that its term has ended. If a holder's
	// rows vanish, its term nevertheless continues until its deadline.
	assumedLease time.Duration
	absent       time.Time // the time, by Spanner's clock, since which the lock row is known to be missing
	orphanLeases map[table.Token]table.LeaseRecord
	taken        bool          // the lock had not been given back when its row was last seen
	pace         time.Duration // the last holder's lease; 0 if no holder was seen
	last         time.Time     // a holder's last known heartbeat or release, by Spanner's clock

	leaving table.Token // the token of a holder that was seen to be leaving
	marked  Instant     // when that holder was last seen not to be leaving
	looked  Instant     // when the last look at the lock began
}

// rules are the candidate's settings for deciding when a lock is free.
type rules struct {
	lease    time.Duration // the candidate's own
	delay    time.Duration
	reclaim  bool
	id       string
	own      table.Token   // of the candidate's last term, which has ended
	unkept   table.Token   // own, if that term expired because heartbeats failed, so that other candidates get the next one
	yieldFor time.Duration // how long the candidate then lets others go first

	rank int // how far the candidate's priority is below the highest
}

// learn updates the history with an observation.
func (h *lockHistory) learn(o table.Observation, r rules) {
	h.token, h.at = o.Token, o.At
	if !o.Exists {
		h.miss(o, r)
		return
	}
	h.absent, h.orphanLeases = time.Time{}, nil
	h.taken = !o.Heartbeat.IsZero() || o.Writer != "" // a withdrawn claim does not count as a release
	if o.Confirmed() {
		h.last = o.Heartbeat
	} else if !h.taken {
		h.last = o.ReleasedAt()
	}
	switch {
	case o.Heartbeat.IsZero():
		h.assumedLease = 0
	case !o.Confirmed():
		h.assumedLease = max(h.assumedLease, r.lease) // a bare claim does not prove that the term before it has ended
	case o.LeaseRecord == nil && h.leaseRecordOf(o.Token) == nil:
		h.assumedLease = r.lease // because the lease record can't be read, or was deleted
		h.assumeOrphans(o, r)
	case o.LeaseRecord == nil:
		h.assumedLease = h.record.Lease
	default:
		h.holder, h.record, h.assumedLease, h.pace = o.Token, o.LeaseRecord, o.LeaseRecord.Lease, o.LeaseRecord.Lease
	}
}

// miss notes that the lock row is missing. Without a lock row a holder can't extend its lease, but it might not have
// noticed yet. So the absence counts from the first look that found the row missing, or that found a new orphan lease.
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

// assumeOrphans assumes that each orphan lease, except the candidate's own, belongs to a holder.
func (h *lockHistory) assumeOrphans(o table.Observation, r rules) {
	for token, p := range o.OrphanLeases {
		if token != r.own {
			h.assumedLease = max(h.assumedLease, p.Lease)
		}
	}
}

// leaseRecordOf returns the lease record of the holder with that token, or nil if it was not read.
func (h *lockHistory) leaseRecordOf(token table.Token) *table.LeaseRecord {
	if h.holder != token {
		return nil
	}
	return h.record
}

// freeIn is the heart of the protocol. It returns how long after an observation the lock can be claimed. The
// observation must already have been learned. freeIn changes nothing.
func (h *lockHistory) freeIn(o table.Observation, r rules) time.Duration {
	switch {
	case !o.Exists && h.assumedLease == 0:
		return h.absent.Sub(o.At) // the lock was never held, or its last holder gave it back
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

// priorityDelay returns how long the candidate lets higher priorities go first. This is at most lease/50 or one second,
// whichever is shorter, where lease is the last holder's. If each candidate used its own lease instead, a high priority
// with a long lease would come after a low priority with a short one.
func (h *lockHistory) priorityDelay(r rules) time.Duration {
	return min(h.paceOr(r.lease)/50, longestSpread) * time.Duration(r.rank) / table.MaxRank
}

// paceOr returns the last holder's lease, which all candidates know, or own if the candidate has seen no holder.
func (h *lockHistory) paceOr(own time.Duration) time.Duration { return cmp.Or(h.pace, own) }

// notReleased reports whether the last holder may still be at work because it has not given the lock back. A lock that
// was never held counts as released. A bare claim does not, because the holder that it superseded is not known. Neither
// does a lock whose row has vanished.
func (h *lockHistory) notReleased(o table.Observation) bool {
	return h.taken || len(o.OrphanLeases) > 0
}

// learnLeaving notes whether the holder is leaving, as seen in a look that began at that instant.
func (h *lockHistory) learnLeaving(o table.Observation, began Instant) {
	if o.Leaving() && h.leaving != o.Token {
		h.leaving, h.marked = o.Token, h.looked
		if h.looked == (Instant{}) {
			h.marked = began
		}
	}
	h.looked = began
}
