package spindle

import (
	"cmp"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// EventKind is the kind of an Event.
type EventKind int

const (
	// Elected: this Lock now holds the lock, under Event.Token.
	Elected EventKind = iota + 1
	// Lost: the term of Event.Token is over. Event.Err says why: ErrSuperseded, ErrExpired, ErrSteppedDown or
	// ErrStopped.
	Lost
	// Jeopardy: a heartbeat failed with Event.Err. The lock is still held. It is lost at Event.Deadline unless a
	// heartbeat is acknowledged before then.
	Jeopardy
	// Safe: a heartbeat was acknowledged again after Jeopardy.
	Safe
	// LeaderSeen: another process holds the lock. Event.Leader describes it.
	LeaderSeen
	// LeaderGone: the leader seen last, Event.Leader, does not hold the lock any more. If another was seen, or this
	// Lock was elected, the next Event says so.
	LeaderGone
	// Leaving: the leader has announced that it will give up the lock, and still holds it. If the leader is another
	// process, Event.Leader describes it; otherwise it is this Lock.
	Leaving
	// PartitionAssigned, of a group: this member now has the partition Event.Partition, under Event.Token.
	PartitionAssigned
	// PartitionRevoked, of a group: this member does not act on Event.Partition any more. Event.Err says why, like the
	// cause of its work's context. The partition is free once the work has returned.
	PartitionRevoked
)

var kindNames = map[EventKind]string{Elected: "elected", Lost: "lost", Jeopardy: "jeopardy", Safe: "safe", LeaderSeen: "leader seen", LeaderGone: "leader gone", Leaving: "leaving", PartitionAssigned: "partition assigned", PartitionRevoked: "partition revoked"}

// String returns the name of the kind in lower case, such as "leader seen".
func (k EventKind) String() string { return cmp.Or(kindNames[k], "unknown") }

// Event is something that happened to a lock.
type Event struct {
	Kind      EventKind
	At        time.Time // by the local clock
	Token     Token     // of the term it is about
	Partition string    // of PartitionAssigned and PartitionRevoked: its name in the list
	Err       error     // of Lost and Jeopardy
	Deadline  time.Time // of Elected, Jeopardy and Safe: when the term ends unless it is extended, by the local clock
	Leader    Leader    // of LeaderSeen, LeaderGone and Leaving
}

func eventOf(e elect.Event) Event {
	ev := Event{Kind: EventKind(e.Kind), At: e.At, Token: Token(e.Token), Partition: e.Partition, Err: e.Err, Deadline: e.Deadline}
	if e.Leader.LeaseRecord != nil {
		ev.Leader = leaderOf(e.Leader)
	}
	return ev
}
