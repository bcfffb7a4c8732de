package spindle

import (
	"cmp"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// EventKind is the kind of an Event.
type EventKind int

const (
	// Elected means that this Lock now holds the lock, under Event.Token.
	Elected EventKind = iota + 1
	// Lost means that the term of Event.Token has ended. Event.Err gives the reason: ErrSuperseded, ErrExpired,
	// ErrSteppedDown or ErrStopped.
	Lost
	// Jeopardy means that a heartbeat failed with Event.Err. The lock is still held, but it will be lost at
	// Event.Deadline unless a heartbeat is acknowledged before then.
	Jeopardy
	// Safe means that a heartbeat was acknowledged again after Jeopardy.
	Safe
	// LeaderSeen means that another process holds the lock. Event.Leader describes that process.
	LeaderSeen
	// LeaderGone means that the last leader seen, Event.Leader, no longer holds the lock. If a new leader has been seen
	// or this Lock has been elected, the next Event says so.
	LeaderGone
	// Leaving means that the leader has announced that it will give up the lock, which it still holds. If the leader is
	// another process, Event.Leader describes it; otherwise, the leader is this Lock.
	Leaving
	// PartitionAssigned means that this member of a group now has the partition Event.Partition, under Event.Token.
	PartitionAssigned
	// PartitionRevoked means that this member of a group no longer acts on the partition Event.Partition. Event.Err
	// gives the reason, which is also the cause of the work's context. The partition is free once the work has
	// returned.
	PartitionRevoked
)

var kindNames = map[EventKind]string{Elected: "elected", Lost: "lost", Jeopardy: "jeopardy", Safe: "safe", LeaderSeen: "leader seen", LeaderGone: "leader gone", Leaving: "leaving", PartitionAssigned: "partition assigned", PartitionRevoked: "partition revoked"}

// String returns the name of the kind in lower case, such as "leader seen".
func (k EventKind) String() string { return cmp.Or(kindNames[k], "unknown") }

// Event describes something that happened to a lock.
type Event struct {
	Kind      EventKind
	At        time.Time // by the local clock
	Token     Token     // the fencing token of the term that the event is about
	Partition string    // for PartitionAssigned and PartitionRevoked: the partition's name in the list
	Err       error     // for Lost, Jeopardy and PartitionRevoked
	Deadline  time.Time // for Elected, Jeopardy and Safe: when the term ends unless it is extended, by the local clock
	Leader    Leader    // for LeaderSeen, LeaderGone and Leaving
}

func eventOf(e elect.Event) Event {
	ev := Event{Kind: EventKind(e.Kind), At: e.At, Token: Token(e.Token), Partition: e.Partition, Err: e.Err, Deadline: e.Deadline}
	if e.Leader.LeaseRecord != nil {
		ev.Leader = leaderOf(e.Leader)
	}
	return ev
}
