package model

import (
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// LockJSON is the JSON form of a lock.
type LockJSON struct {
	Name         string         `json:"name"` // the lock's name
	State        operator.State `json:"state"`
	Holder       string         `json:"holder,omitempty"`                            // the holder's id, or the last holder's; absent: there is none
	Value        string         `json:"value,omitempty"`                             // what the holder published
	Token        string         `json:"token,omitempty" schema:"pattern=^-?[0-9]+$"` // the token of the holder's term, a whole number in a string; absent if the lock is released or free
	Since        time.Time      `json:"since,omitzero"`                              // when the term began, or the lock was released
	Heartbeat    time.Time      `json:"heartbeat,omitzero"`                          // the last heartbeat
	AgeSeconds   *float64       `json:"heartbeat_age_seconds,omitempty"`             // its age
	LeaseSeconds float64        `json:"lease_seconds,omitempty"`                     // the holder's lease
	At           time.Time      `json:"at"`                                          // when all of this was read, by Spanner's clock
	Problem      string         `json:"problem,omitempty"`                           // why the lock can't be read
	doneJSON
	waitingJSON
	partJSON
}

// doneJSON describes the work that was last done under a lock.
type doneJSON struct {
	Done    string    `json:"done,omitempty"`             // the key that lock.Once, or exec with --every, --cron or --once, last did under the lock
	DoneBy  string    `json:"done_by,omitempty"`          // the id of the holder that did it
	DoneAt  time.Time `json:"done_at,omitzero"`           // when it was recorded
	DoneAge *float64  `json:"done_age_seconds,omitempty"` // how long ago
}

// waitingJSON says how many processes wait for a lock.
type waitingJSON struct {
	Waiting     int      `json:"waiting,omitempty" schema:"minimum=1"`              // how many processes wait in the lock's queue; absent: none
	WaitingMore bool     `json:"waiting_at_least,omitempty"`                        // not all waiters were read: there may be more
	LongestWait *float64 `json:"longest_wait_seconds,omitempty" schema:"minimum=0"` // the longest time that any of them has waited
}

// partJSON has the group that a lock belongs to, and the lock's role in the group.
type partJSON struct {
	Group     string `json:"group,omitempty"`     // the group that the lock belongs to
	Partition string `json:"partition,omitempty"` // the partition's name, if the lock is one
	Member    string `json:"member,omitempty"`    // the lock of the member that has the partition, or last had it
}

// JSONOf returns the JSON form of a lock.
func JSONOf(l operator.Listing) LockJSON {
	j := LockJSON{Name: l.Name, State: l.State(), Holder: l.Holder(), Token: tokenOf(l), Heartbeat: l.Heartbeat.UTC(), AgeSeconds: age(l.Heartbeat, l.At), At: l.At.UTC(), Problem: Problem(l)}
	if l.Token != 0 {
		j.Since = l.Since().UTC()
	}
	if l.LeaseRecord != nil {
		j.Value, j.LeaseSeconds = l.LeaseRecord.Value, l.LeaseRecord.Lease.Seconds()
	}
	if l.Done.Key != "" {
		j.doneJSON = doneJSON{l.Done.Key, l.Done.By, l.Done.At.UTC(), age(l.Done.At, l.At)}
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

// tokenOf returns the token of a lock's term, or "" if the lock has none.
func tokenOf(l operator.Listing) string {
	if l.Token == 0 || l.Exists && l.Heartbeat.IsZero() { // the token of a released lock belongs to no term
		return ""
	}
	return l.Token.String()
}

// Problem returns why a part of the lock can't be read, or "" if all of it can.
func Problem(l operator.Listing) string {
	switch {
	case l.Unreadable != nil:
		return l.Unreadable.Error()
	case l.Undone != nil:
		return l.Undone.Error()
	}
	return ""
}

// age returns the seconds from one instant to another, even if they are too many for a time.Duration. If the first
// instant is zero, age returns nil.
func age(from, to time.Time) *float64 {
	if from.IsZero() {
		return nil
	}
	seconds := float64(to.UnixMicro()-from.UnixMicro()) / 1e6
	return &seconds
}

// waiterJSON is the JSON form of a process that waits in a lock's queue.
type waiterJSON struct {
	Place   int       `json:"place" schema:"minimum=1"`           // its place in line, from 1
	ID      string    `json:"id,omitempty"`                       // its id
	Since   time.Time `json:"since"`                              // when it began to wait
	Seconds float64   `json:"waiting_seconds" schema:"minimum=0"` // how long it has waited
	Key     string    `json:"key,omitempty"`                      // the key of the work that it wants to do
	Set     bool      `json:"set,omitempty"`                      // it waits for other locks too

	Notified string `json:"notified,omitempty" schema:"$ref=notified"`
}

// A waiter can be notified that the lock is free if both its own row and the holder's row have an address. The table
// does not show whether the holder answers messages. If it does not answer them, the waiter polls as often as it would
// without notifications.
const (
	canBeNotified = "can be notified"
	unnotified    = "no notifications"
	holderIsMute  = "no notifications from the holder"
)

// Notified lists what the command can say about a waiter's notifications.
var Notified = []string{canBeNotified, unnotified, holderIsMute}

// notified returns one of Notified, or "" if the lock has no holder.
func notified(l operator.Listing, w table.Ticket) string {
	switch {
	case !l.IsHeld():
		return ""
	case w.Notify == "":
		return unnotified
	case l.LeaseRecord.Notify == "":
		return holderIsMute
	}
	return canBeNotified
}

// StatusJSON is the JSON output of status for a lock.
type StatusJSON struct {
	LockJSON
	Waiters []waiterJSON `json:"waiters,omitempty"` // the waiters, first in line first
}

// StatusOf returns the StatusJSON for a lock.
func StatusOf(l operator.Listing) StatusJSON {
	j := StatusJSON{LockJSON: JSONOf(l)}
	for i, w := range l.Waiters {
		since := w.Since()
		j.Waiters = append(j.Waiters, waiterJSON{i + 1, w.ID, since, max(l.At.Sub(since), 0).Seconds(), w.Key, w.Set, notified(l, w)})
	}
	return j
}
