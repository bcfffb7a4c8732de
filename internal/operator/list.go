// Package operator reads a lock table for operators: it lists locks with their states and waiters, and finds rows that
// are no longer needed. No step of the protocol depends on this package.
package operator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// State is the state of a lock at one instant of Spanner's time.
type State string

const (
	Free        State = "free"        // it has no row, because it was never claimed or its row was deleted
	Held        State = "held"        // its holder's lease has not expired
	Leaving     State = "leaving"     // it is held, but its holder has announced that it will release it
	Expired     State = "expired"     // its holder's lease has expired, and it has not been claimed since
	Released    State = "released"    // its last holder released it
	Paused      State = "paused"      // it is a partition that nobody holds, because its member's program has paused it
	Unconfirmed State = "unconfirmed" // it is claimed, but has no lease row that allows the claimant to act
	Orphaned    State = "orphaned"    // its lock row, or the row of its member, was deleted by hand while a lease row remained
	Unreadable  State = "unreadable"  // its lease row has a newer format or no valid lease
)

// Listing is a lock as operators see it, including its lease row. If a member holds a partition, the token in the
// partition's listing is the partition's own. The heartbeat, the holder and the lease record are copied from the
// member.
type Listing struct {
	table.Observation
	Unreadable error          // why the lease record can't be read
	Done       table.Done     // the last completed key
	Undone     error          // why Done can't be read
	Member     table.LeaseRef // for a partition, the member that has it or had it last
	Adrift     bool           // the row of that member is missing
	Paused     bool           // that member is alive, and has paused the partition

	Waiters []table.Ticket // in queue order; in a list, only the first slot of a semaphore has them
	Cut     bool           // there may be more waiters, because not all tickets were read
}

func (l Listing) State() State {
	switch {
	case l.Unreadable != nil:
		return Unreadable
	case !l.Exists && len(l.OrphanLeases) > 0, l.Adrift: // a free row does not allow anyone to act
		return Orphaned
	case !l.Exists:
		return Free
	case l.Paused:
		return Paused
	case l.Heartbeat.IsZero():
		return Released
	case l.LeaseRecord == nil:
		return Unconfirmed
	case l.At.Sub(l.Heartbeat) >= l.LeaseRecord.Lease:
		return Expired
	case l.Leaving():
		return Leaving
	}
	return Held
}

// IsHeld reports whether the lock has a holder, even if it is leaving.
func (l Listing) IsHeld() bool { return l.State() == Held || l.State() == Leaving }

// IsPart reports whether the lock belongs to a group. Because an ordinary lock can have a name of the same form, IsPart
// relies on the name alone only if the lock has no lease record.
func (l Listing) IsPart() bool {
	_, ok := table.PartOf(l.Name)
	return ok && (l.Member != (table.LeaseRef{}) || l.LeaseRecord == nil || l.LeaseRecord.ListDigest != "")
}

// Kind returns the lock's kind, or "" if its rows do not show it.
func (l Listing) Kind() table.LockKind {
	p := l.LeaseRecord
	free := !l.Freed.IsZero() || p != nil && p.Nonce != "" // only package lock claims locks through free rows
	switch {
	case l.IsPart():
		return table.GroupPart
	case p != nil && p.Kind != "":
		return p.Kind
	case p != nil && p.Slots > 0, free && len(queuesOf(l.Name)) > 1:
		return table.Semaphore
	case free:
		return table.Mutex
	}
	return ""
}

// idle reports whether the lock has neither a holder nor waiters, and is not part of a group.
func (l Listing) idle() bool {
	return (l.State() == Released || l.State() == Free) && !l.IsPart() && len(l.Waiters) == 0
}

// List returns all locks whose names begin with the prefix, in the order of their names. It reads them in one snapshot,
// at the returned time. However, the waiters, and a few locks that must be read again, can come from later snapshots
// (see read). If a lock's rows can't be decoded, that lock's listing says so, and List still succeeds.
//
// If all is false, List omits released locks, and locks whose only row records the last completed key. It always
// includes locks with waiters. It also includes all locks of groups, because the states of a group's locks depend on
// each other.
func List(ctx context.Context, t table.Table, prefix string, all bool) ([]Listing, time.Time, error) {
	found, at, err := read(ctx, t, prefix, all)
	return slices.DeleteFunc(found, func(l Listing) bool { return !all && l.idle() }), at, err
}

// ListWith is like List, but always includes the named locks, even if they are released or have no rows. It makes
// additional requests for named locks that the first request did not return.
//
// If all is false, ListWith also includes locks with a record of a completed key. It reports the released ones among
// them as free, unless they are named or have waiters.
func ListWith(ctx context.Context, t table.Table, prefix string, all bool, named ...string) ([]Listing, time.Time, error) {
	found, at, err := read(ctx, t, prefix, all, named...)
	return slices.DeleteFunc(found, func(l Listing) bool {
		return !all && l.idle() && l.Done.Key == "" && l.Undone == nil && !slices.Contains(named, l.Name)
	}), at, err
}

// read lists the named locks, and all locks with the prefix, even if they have only waiters. If all is false, its first
// request omits the rows of released locks. If that request returns no lock row for a lock that has waiters or a lease
// row, read then reads that lock again. It does the same for named locks, even if all is true.
func read(ctx context.Context, t table.Table, prefix string, all bool, named ...string) ([]Listing, time.Time, error) {
	keys := table.Keys{All: true, Prefix: prefix, Busy: !all}
	if members, ok := membersBeside(prefix); ok {
		keys = table.Keys{Ranges: []table.Range{{From: prefix, To: prefix + "\U0010FFFF"}, members}}
	}
	rows, err := t.Read(ctx, "list", table.Present, keys)
	if err != nil {
		return nil, rows.At, err
	}
	names, tickets := namesIn(rows, prefix), rows
	if prefix != "" { // the keys of tickets do not begin with the lock's name, and no step relies on the snapshot that they come from
		if tickets, err = t.Read(ctx, "list", table.Present, table.Keys{All: true, Prefix: table.TicketPrefix}); err != nil {
			return nil, rows.At, err
		}
	}
	for _, name := range named {
		names[name] = true
	}
	waiting := queuesIn(tickets).waiters(slices.Sorted(maps.Keys(names)), prefix)
	for name := range waiting {
		names[name] = true
	}
	found := list(slices.Sorted(maps.Keys(names)), rows)
	var again []int
	for i := range found {
		l := &found[i]
		l.Waiters = waiting[l.Name]
		if !l.Exists && (keys.Busy && (len(l.Waiters) > 0 || l.State() != Free) || slices.Contains(named, l.Name)) {
			again = append(again, i)
		}
	}
	for some := range slices.Chunk(again, batch) {
		names := make([]string, len(some))
		for n, i := range some {
			names[n] = found[i].Name
		}
		more, err := t.Read(ctx, "list", table.Present, keysOf(names, rows.At))
		if err != nil {
			return found, rows.At, err
		}
		for n, l := range list(names, more) {
			if old := &found[some[n]]; l.Exists || old.State() == Free {
				l.Waiters = old.Waiters
				*old = l
			}
		}
	}
	return found, rows.At, nil
}

// keysOf returns the keys of the rows of some locks, and of the members of their groups (see membersBeside).
func keysOf(names []string, about time.Time) table.Keys {
	keys := table.WithLeases(names, about)
	for _, name := range names {
		keys.Names = append(keys.Names, table.DoneRow(name))
		if members, ok := membersBeside(name); ok && !slices.Contains(keys.Ranges, members) {
			keys.Ranges = append(keys.Ranges, members)
		}
	}
	return keys
}

// namesIn returns the names of the locks to which the rows belong, if these names begin with the prefix.
func namesIn(rows table.Rows, prefix string) map[string]bool {
	names := map[string]bool{}
	for _, row := range rows.All {
		// The keys of lock A's lease rows begin with A_, but the lock's name does not.
		if role, lock := table.RoleOf(row.Name); role != table.OfPlan && role != table.OfTicket && strings.HasPrefix(lock, prefix) {
			names[lock] = true
		}
	}
	return names
}

// membersBeside returns the key range of a group's members if prefix selects the group's partitions but not its
// members. Partitions can't be listed without the rows of their members.
func membersBeside(prefix string) (table.Range, bool) {
	const partitions = "partition/"
	group, rest, ok := strings.Cut(prefix, "/")
	if !ok || rest == "" || !strings.HasPrefix(rest, partitions) && !strings.HasPrefix(partitions, rest) {
		return table.Range{}, false
	}
	return table.MembersOf(group + "/"), true
}

// ListOne is like List for a single lock. It takes one RPC, unless the lock has many waiters, the lock is a partition
// of a group with many members, or the local clock is far behind Spanner's clock. If there are many waiters, the
// listing contains only the first ones.
func ListOne(ctx context.Context, t table.Table, name string) (Listing, error) {
	var beside table.Beside
	for _, queue := range queuesOf(name) {
		beside.Queues = append(beside.Queues, table.Waiting(queue, ""))
	}
	rows, err := t.Beside(&beside).ReadAbout(ctx, "list", time.Now(), func(about time.Time) table.Keys {
		return keysOf([]string{name}, about)
	})
	if err != nil {
		return Listing{}, err
	}
	l := list([]string{name}, rows)[0]
	l.Waiters = queuesIn(rows).waiters([]string{name}, name)[name]
	for _, queue := range queuesOf(name) {
		l.Cut = l.Cut || len(table.Tickets(queue, rows.All)) >= table.MostTickets
	}
	return l, nil
}

// ListGroup is like List for all locks of a group, in one request, without their waiters.
func ListGroup(ctx context.Context, t table.Table, group string) ([]Listing, time.Time, error) {
	prefix := table.GroupPrefix(group)
	rows, err := t.Read(ctx, "list", table.Present, table.Keys{All: true, Prefix: prefix})
	return list(slices.Sorted(maps.Keys(namesIn(rows, prefix))), rows), rows.At, err
}

// list combines rows into listings of the named locks.
func list(names []string, rows table.Rows) []Listing {
	members := map[string]Listing{}
	member := func(name string) Listing {
		m, known := members[name]
		if !known {
			m.Observation, m.Unreadable = rows.Lock(name)
			members[name] = m
		}
		return m
	}
	found := make([]Listing, len(names))
	for i, name := range names {
		l := &found[i]
		if part, _ := table.PartOf(name); part.Partition == "" {
			l.Observation, l.Unreadable = rows.Lock(name)
		} else {
			l.Observation, l.Unreadable = rows.Observe(name)
			if by, named := l.namesMember(); named {
				l.follow(member(by.Name), by)
			}
		}
		if l.Heartbeat.IsZero() {
			l.Writer = "" // a withdrawn claim leaves its id there
		}
		l.Done, l.Undone = rows.Done(name)
	}
	return found
}

// namesMember returns the member that holds the partition, held it last, or has marked it as paused (see MarkPaused).
func (l Listing) namesMember() (table.LeaseRef, bool) {
	switch {
	case l.Heartbeat.IsZero(), l.LeaseRecord == nil && l.Unreadable == nil:
		return table.MemberOf(l.Writer)
	case l.LeaseRecord == nil:
		return table.LeaseRef{}, false
	}
	return table.MemberOf(l.LeaseRecord.With)
}

// follow gives a partition the state of the member that its rows name.
func (l *Listing) follow(m Listing, by table.LeaseRef) {
	if l.Heartbeat.IsZero() {
		if m.IsHeld() && m.Token == by.Token {
			l.Member, l.Paused = by, true
		}
		return
	}
	l.Member = by
	switch {
	case !m.Exists:
		l.Writer, l.Adrift = "", true
	case m.Heartbeat.IsZero() || m.Token != by.Token: // that term has ended, which freed the partition
		l.Heartbeat, l.Token, l.LeaseRecord = time.Time{}, m.Token, nil
	case l.LeaseRecord == nil:
		l.Writer = m.Holder()
	default:
		l.Heartbeat, l.Writer, l.LeaseRecord, l.Unreadable = m.Heartbeat, m.Writer, m.LeaseRecord, m.Unreadable
	}
}
