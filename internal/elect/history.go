package elect

import (
	"cmp"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// lockHistory is what a candidate remembers about one lock between polls.
type lockHistory struct {
	token  table.Token        // in the lock row at the last poll
	at     time.Time          // when the last poll was, by Spanner's clock
	holder table.Token        // the token of the holder that wrote record
	record *table.LeaseRecord // nil if none was read

	// assumedLease is the last known holder's lease, or zero once there is evidence that the holder's term has ended.
	// Missing rows are not such evidence, because a holder whose rows were deleted may act until its deadline.
	assumedLease time.Duration
	absence
	taken bool          // the lock had not been given back when its row was last seen
	pace  time.Duration // the last holder's lease; 0 if no holder was seen
	last  time.Time     // a holder's last known heartbeat or release, by Spanner's clock

	leaving table.Token // the token of a holder that was seen to be leaving
	marked  Instant     // when that holder was last seen not to be leaving
	looked  Instant     // when the last poll of the lock began
}

// absence is what is known about a missing lock row.
type absence struct {
	absent       time.Time // since when the row is known to be missing, by Spanner's clock
	orphanLeases map[table.Token]table.LeaseRecord
}

// rules are the candidate's settings for deciding when a lock is free.
type rules struct {
	lease    time.Duration // the candidate's own
	delay    time.Duration
	reclaim  bool
	id       string
	own      table.Token   // the token of the candidate's last term, which has ended
	unkept   table.Token   // own, if that term expired because heartbeats failed; other candidates may then claim first
	yieldFor time.Duration // how long the candidate then lets other candidates go first

	rank int // how far the candidate's priority is below the highest
}

// learn updates the history with an observation.
func (h *lockHistory) learn(o table.Observation, r rules) {
	h.token, h.at = o.Token, o.At
	if !o.Exists {
		h.miss(o, r)
		return
	}
	h.absent = time.Time{}
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

// miss records that the lock row is missing. A holder can then no longer extend its lease, but may act until the lease
// expires. The candidate therefore waits for the assumed lease after the first poll that found the row missing. If a
// poll finds a new orphan lease, the wait starts again.
func (h *lockHistory) miss(o table.Observation, r rules) {
	if h.absent.IsZero() || !h.knows(o.OrphanLeases) {
		h.absent, h.orphanLeases = o.At, o.OrphanLeases
	}
	h.assumeOrphans(o, r)
}

func (h *absence) knows(orphanLeases map[table.Token]table.LeaseRecord) bool {
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

// freeIn returns the time from the observation o until the lock can be claimed. It is the heart of the protocol. The
// caller must already have called learn with this observation. freeIn itself changes nothing.
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

// priorityDelay returns how long the candidate waits so that candidates of higher priority can claim first. For the
// lowest priority, the delay is a fiftieth of the last holder's lease, or one second if that is shorter.
//
// If the candidate has seen a holder, the delay does not depend on the candidate's own lease. If it did, a candidate of
// high priority with a long lease could come after a candidate of low priority with a short one.
func (h *lockHistory) priorityDelay(r rules) time.Duration {
	return min(h.paceOr(r.lease)/50, longestSpread) * time.Duration(r.rank) / table.MaxRank
}

// paceOr returns the last holder's lease, which all candidates know, or the candidate's own lease if it has seen no
// holder.
func (h *lockHistory) paceOr(own time.Duration) time.Duration { return cmp.Or(h.pace, own) }

// notReleased reports whether the last holder has not released the lock, and so might still be working. It returns
// false if the lock was never held. It returns true after an unconfirmed claim, because the holder before that claim is
// not known. It also returns true if the row of a held lock has vanished.
func (h *lockHistory) notReleased(o table.Observation) bool {
	return h.taken || len(o.OrphanLeases) > 0
}

// learnLeaving records whether the holder is leaving. The caller passes the time at which the poll began.
func (h *lockHistory) learnLeaving(o table.Observation, began Instant) {
	if o.Leaving() && h.leaving != o.Token {
		h.leaving, h.marked = o.Token, h.looked
		if h.looked == (Instant{}) {
			h.marked = began
		}
	}
	h.looked = began
}
