package model

import (
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
)

// An End says why a term ended, as far as the table shows it.
type End string

// The ends of terms.
const (
	EndExpired    End = "expired"     // no heartbeat was acknowledged for a lease
	EndReleased   End = "released"    // its holder released the lock, or an operator broke it
	EndHandedOver End = "handed over" // its holder announced that it was leaving, and released the lock
	EndReclaimed  End = "reclaimed"   // the same holder has the next term
	EndDeleted    End = "deleted"     // its rows were deleted
	EndUnseen     End = "unseen"      // the reads were too far apart to show why it ended
	EndMissed     End = "missed"      // it began and ended between two reads, so its holder is not known either
)

// Ending returns when and why a term ended. Its arguments are the last listing that showed the term, and the next one.
func Ending(was, now operator.Listing) (time.Time, End) {
	end := now.Since() // of the release, or of the next claim
	var expiry time.Time
	if was.LeaseRecord != nil {
		expiry = was.Heartbeat.Add(was.LeaseRecord.Lease)
	}
	switch {
	case was.State() == operator.Expired:
		return expiry, EndExpired
	case !now.Exists:
		return now.At, EndDeleted
	case was.LeaseRecord == nil:
		return end, EndReleased
	case !end.Before(expiry):
		// A heartbeat after the previous read may have extended the lease. This is unlikely if the next claim came within
		// half a lease of that read, because the last heartbeat was already late at the time of the read. If the lock
		// was released rather than claimed, its holder may have sent another heartbeat first. The term then counts as
		// expired only if the two reads are less than half a lease apart.
		within := end.Sub(was.At)
		if now.Heartbeat.IsZero() {
			within = now.At.Sub(was.At)
		}
		if within < was.LeaseRecord.Lease/2 {
			return expiry, EndExpired
		}
		return end, EndUnseen
	case was.Leaving():
		return end, EndHandedOver
	case now.Holder() == was.Holder():
		return end, EndReclaimed
	}
	return end, EndReleased
}
