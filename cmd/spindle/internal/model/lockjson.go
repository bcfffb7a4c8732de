package model

import (
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// LockJSON is the JSON form of a lock.
type LockJSON struct {
	Name         string     `json:"name"`
	State        string     `json:"state"`
	Holder       string     `json:"holder,omitempty"`
	Value        string     `json:"value,omitempty"`
	Token        string     `json:"token,omitempty"` // a string, because some languages lose digits of JSON numbers
	Since        *time.Time `json:"since,omitempty"`
	Heartbeat    *time.Time `json:"heartbeat,omitempty"`
	AgeSeconds   *float64   `json:"heartbeat_age_seconds,omitempty"`
	LeaseSeconds float64    `json:"lease_seconds,omitempty"`
	At           time.Time  `json:"at"`
	Problem      string     `json:"problem,omitempty"`
	doneJSON
	waitingJSON
	partJSON
}

// doneJSON describes the work that was last done under a lock.
type doneJSON struct {
	Done    string     `json:"done,omitempty"` // its key
	DoneBy  string     `json:"done_by,omitempty"`
	DoneAt  *time.Time `json:"done_at,omitempty"`
	DoneAge *float64   `json:"done_age_seconds,omitempty"`
}

// waitingJSON says how many processes wait for a lock.
type waitingJSON struct {
	Waiting     int      `json:"waiting,omitempty"`
	WaitingMore bool     `json:"waiting_at_least,omitempty"` // there may be more
	LongestWait *float64 `json:"longest_wait_seconds,omitempty"`
}

// partJSON has the group that a lock belongs to, and the lock's role in the group.
type partJSON struct {
	Group     string `json:"group,omitempty"`
	Partition string `json:"partition,omitempty"`
	Member    string `json:"member,omitempty"` // for a partition, the lock of the member that has it or last had it
}

// JSONOf returns the JSON form of a lock.
func JSONOf(l operator.Listing) LockJSON {
	j := LockJSON{Name: l.Name, State: string(l.State()), Holder: l.Holder(), At: l.At.UTC()}
	if l.Token != 0 {
		since := l.Since().UTC()
		j.Token, j.Since = l.Token.String(), &since
	}
	if l.Exists && l.Heartbeat.IsZero() {
		j.Token = "" // it belongs to no term
	}
	if !l.Heartbeat.IsZero() {
		heartbeat, age := l.Heartbeat.UTC(), seconds(l.Heartbeat, l.At)
		j.Heartbeat, j.AgeSeconds = &heartbeat, &age
	}
	if l.LeaseRecord != nil {
		j.Value, j.LeaseSeconds = l.LeaseRecord.Value, l.LeaseRecord.Lease.Seconds()
	}
	if l.Unreadable != nil {
		j.Problem = l.Unreadable.Error()
	} else if l.Undone != nil {
		j.Problem = l.Undone.Error()
	}
	if l.Done.Key != "" {
		at, age := l.Done.At.UTC(), seconds(l.Done.At, l.At)
		j.doneJSON = doneJSON{l.Done.Key, l.Done.By, &at, &age}
	}
	if len(l.Waiters) > 0 {
		longest := l.LongestWait().Seconds()
		j.waitingJSON = waitingJSON{len(l.Waiters), l.Cut, &longest}
	}
	if part, _ := table.PartOf(l.Name); l.IsPart() {
		j.partJSON = partJSON{part.Group, part.Partition, l.Member.Name}
	}
	return j
}

// seconds returns the time from one instant to another, even if it is too long for a time.Duration.
func seconds(from, to time.Time) float64 { return float64(to.UnixMicro()-from.UnixMicro()) / 1e6 }
