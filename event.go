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
	// Lost means that the term of Event.Token has ended. Event.Err wraps the reason: ErrSuperseded, ErrExpired,
	// ErrStalled, ErrSteppedDown or ErrStopped. A member of a group also gives up its term if it can neither claim nor
	// release partitions, and Event.Err then says so.
	Lost
	// Jeopardy means that a heartbeat failed or was not answered in time, for the reason in Event.Err. The lock is still
	// held, but it will be lost at Event.Deadline unless a heartbeat is acknowledged before then.
	Jeopardy
	// Safe means that, after Jeopardy, a heartbeat was acknowledged again.
	Safe
	// LeaderSeen means that another process holds the lock. Event.Leader describes that process.
	LeaderSeen
	// LeaderGone means that Event.Leader, the last known leader, no longer holds the lock. If a new leader is already
	// known, the next Event is LeaderSeen, or Elected if this Lock is the new leader.
	LeaderGone
	// Leaving means that the leader is announcing to the followers that it will soon release the lock. Until the
	// release, it still holds the lock. If the leader is another process, Event.Leader describes it. Otherwise, this
	// Lock is the leader.
	Leaving
	// PartitionAssigned means that this member of a group now owns the partition Event.Partition, under Event.Token.
	PartitionAssigned
	// PartitionRevoked means that the context of this member's work on the partition Event.Partition has been canceled.
	// Event.Err is the cause. Normally, other members can claim the partition only after the work has returned. If this
	// member has lost its term or the partition, or if the program calls group.Group.LetGo, they need not wait for it.
	PartitionRevoked
	// Stalled means that the work has made no progress for the time that WithStall sets. A Lost event follows at once,
	// even if the work has not returned. In a group, Event.Partition names the partition, and instead of Lost, a
	// PartitionRevoked event follows, unless the partition was already being revoked.
	Stalled
)

var kindNames = map[EventKind]string{Elected: "elected", Lost: "lost", Jeopardy: "jeopardy", Safe: "safe", LeaderSeen: "leader seen", LeaderGone: "leader gone", Leaving: "leaving", PartitionAssigned: "partition assigned", PartitionRevoked: "partition revoked", Stalled: "stalled"}

// String returns the name of the kind in lower case, such as "leader seen".
func (k EventKind) String() string { return cmp.Or(kindNames[k], "unknown") }

// Event describes something that happened to a lock.
type Event struct {
	Kind      EventKind
	At        time.Time // by the local clock
	Token     Token     // the fencing token of the term that the event is about
	Partition string    // for PartitionAssigned, PartitionRevoked and, in a group, Stalled: the partition's name in the list
	Err       error     // for Lost, Jeopardy, PartitionRevoked and Stalled
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
