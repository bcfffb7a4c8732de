package table

import (
	"context"
	"slices"
	"strings"
	"time"
)

// State is the state of a lock at one instant of Spanner's time.
type State string

// The states.
const (
	Free        State = "free"        // it has no row, because it was never claimed or its row was deleted
	Held        State = "held"        // its holder's last heartbeat is within the lease
	Leaving     State = "leaving"     // it is held, but its holder has announced that it will release it
	Expired     State = "expired"     // its holder's lease has expired, and it has not been claimed since
	Released    State = "released"    // its last holder released it
	Paused      State = "paused"      // it is a partition that nobody holds, because its member's program has paused it
	Unconfirmed State = "unconfirmed" // it is claimed, but has no lease row that allows the claimant to act
	Orphaned    State = "orphaned"    // its lock row, or the row of its member, was deleted by hand while a lease row remained
	Unreadable  State = "unreadable"  // its lease row has a newer format or no valid lease
)

// Listing is a lock as operators see it, including its lease row. The listing of a partition contains the partition's
// own token, but the heartbeat, the holder and the lease record are copied from the member that holds the partition.
type Listing struct {
	Observation
	Unreadable error    // why the lease record can't be read
	Done       Done     // the key that was done last under the lock
	Undone     error    // why Done can't be read
	Member     LeaseRef // for a partition, the member that has it or had it last
	Adrift     bool     // the row of that member is missing
	Paused     bool     // that member is alive, and has paused the partition

	Waiters []Ticket // in queue order; in a list, only the first slot of a semaphore has them
	Cut     bool     // there may be more waiters, because not all tickets were read
}

// State returns the state of the lock.
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

// List reads all locks whose names begin with prefix at one instant, and returns them in the order of their names. If a
// lock's rows can't be decoded, that lock's listing says so, and List still succeeds.
//
// If all is false, List omits locks that are released, and locks that have only a done row. But it always includes
// locks with waiters and the locks of groups, whose states depend on each other.
func (t Table) List(ctx context.Context, prefix string, all bool) ([]Listing, time.Time, error) {
	found, at, err := t.listAll(ctx, prefix, !all)
	if all || err != nil {
		return found, at, err
	}
	return slices.DeleteFunc(found, func(l Listing) bool { return l.idle() }), at, nil
}

// ListWith is like List, but always includes the named locks, even if they are released or have no rows. It makes
// additional requests for named locks that the first request did not return.
//
// If all is false, ListWith also includes locks that have a done row. It reports these locks as free, even if they were
// released.
func (t Table) ListWith(ctx context.Context, prefix string, all bool, named ...string) ([]Listing, time.Time, error) {
	found, at, err := t.listAll(ctx, prefix, !all)
	if err != nil {
		return nil, time.Time{}, err
	}
	found = slices.DeleteFunc(found, func(l Listing) bool { return !all && l.idle() && l.Done.Key == "" && l.Undone == nil })
	seen := make(map[string]bool, len(found))
	for _, l := range found {
		seen[l.Name] = l.State() != Free
	}
	missing := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return seen[name] })
	if len(missing) == 0 {
		return found, at, nil
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	more, err := t.further(ctx, missing, at)
	if err != nil {
		return nil, time.Time{}, err
	}
	for i, l := range more {
		if j, is := slices.BinarySearchFunc(found, l.Name, byName); is { // it was found because it has waiters or a done row
			more[i].Waiters = found[j].Waiters
		}
	}
	again := func(l Listing) bool { _, is := slices.BinarySearch(missing, l.Name); return is }
	found = append(slices.DeleteFunc(found, again), more...)
	slices.SortFunc(found, func(a, b Listing) int { return byName(a, b.Name) })
	return found, at, nil
}

func byName(l Listing, name string) int { return strings.Compare(l.Name, name) }

// idle reports whether the lock has neither a holder nor waiters, and is not part of a group.
func (l Listing) idle() bool {
	return (l.State() == Released || l.State() == Free) && !l.IsPart() && len(l.Waiters) == 0
}

// listAll lists the locks with the prefix. If busy is set, it does not read the rows of released locks.
func (t Table) listAll(ctx context.Context, prefix string, busy bool) ([]Listing, time.Time, error) {
	keys := Keys{All: true, Prefix: prefix, Busy: busy}
	if members, ok := membersBeside(prefix); ok {
		keys = Keys{Ranges: []Range{{prefix, prefix + "\U0010FFFF"}, members}}
	}
	rows, at, err := t.Store.Read(ctx, "list", Present, keys)
	if err != nil {
		return nil, time.Time{}, err
	}
	rows, q := queuedIn(rows, at)
	names := namesIn(rows, prefix)
	if prefix != "" {
		tickets, err := t.tickets(ctx, prefix, names)
		if err != nil {
			return nil, time.Time{}, err
		}
		_, q = queuedIn(tickets, at)
	}
	found, err := t.listQueued(ctx, prefix, names, at, rows, q, keys.Busy)
	if err == nil && keys.Busy {
		err = t.adopt(ctx, found, at)
	}
	return found, at, err
}

// adopt rereads locks that seem to have lease rows but no lock row. They may have a lock row after all, because the
// first read skips the lock rows of released locks.
func (t Table) adopt(ctx context.Context, found []Listing, at time.Time) error {
	var orphaned []string
	for _, l := range found {
		if s := l.State(); !l.Exists && (s == Orphaned || s == Unreadable) {
			orphaned = append(orphaned, l.Name)
		}
	}
	if len(orphaned) == 0 {
		return nil
	}
	again, err := t.further(ctx, orphaned, at)
	if err != nil {
		return err
	}
	for _, l := range again {
		if i, is := slices.BinarySearchFunc(found, l.Name, byName); is && l.Exists {
			l.Waiters = found[i].Waiters
			found[i] = l
		}
	}
	return nil
}

// namesIn returns the names of the locks to which the rows belong, if they begin with prefix.
func namesIn(rows []Row, prefix string) map[string]bool {
	names := map[string]bool{}
	for _, row := range rows {
		name := row.Name
		if isPlan(name) {
			continue
		}
		if lock, ok := lockOf(name); ok {
			name = lock
		} else if lock, ok := beside(name); ok {
			name = lock
		}
		if strings.HasPrefix(name, prefix) { // the lease rows of lock a begin with a_, but its name does not
			names[name] = true
		}
	}
	return names
}

// membersBeside returns the key range of a group's members if prefix selects the group's partitions but not its
// members. Partitions can't be listed without the rows of their members.
func membersBeside(prefix string) (Range, bool) {
	const partitions = "partition/"
	group, rest, ok := strings.Cut(prefix, "/")
	if !ok || rest == "" || !strings.HasPrefix(rest, partitions) && !strings.HasPrefix(partitions, rest) {
		return Range{}, false
	}
	return membersOf(group + "/"), true
}

// ListOne is like List for a single lock. It takes one RPC, unless the lock has many waiters or the local clock is far
// behind Spanner's clock. If there are many waiters, the listing contains only the first ones.
func (t Table) ListOne(ctx context.Context, name string) (Listing, error) {
	for about := time.Now(); ; {
		keys := withLeases([]string{name}, about)
		keys.Names = append(keys.Names, name+doneSuffix)
		if members, ok := membersBeside(name); ok {
			keys.Ranges = append(keys.Ranges, members)
		}
		var queues []Range
		for _, queue := range queuesOf(name) {
			queues = append(queues, Waiting(queue, ""))
		}
		rows, at, err := ReadQueues(ctx, t.Store, "list", Present, keys, queues...)
		if err != nil {
			return Listing{}, err
		}
		if !at.After(about.Add(12 * time.Hour)) {
			return listOne(name, at, rows), nil
		}
		about = at
	}
}

func listOne(name string, at time.Time, rows []Row) Listing {
	others, q := queuedIn(rows, at)
	l := list([]string{name}, at, others)[0]
	l.attach(q, queuesOf(name))
	for _, queue := range queuesOf(name) {
		l.Cut = l.Cut || len(Tickets(queue, rows)) >= MostTickets
	}
	return l
}

// Holders reads the held locks in the range, with their lease records, in one RPC. The range may contain the names of
// unrelated locks. Holders ignores a name if the function is returns false for it.
func (t Table) Holders(ctx context.Context, r Range, is func(name string) bool) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", Present, Keys{Ranges: []Range{r}})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if is(row.Name) {
			names = append(names, row.Name)
		}
	}
	all, err := observations(rows, at, names)
	return slices.DeleteFunc(all, func(o Observation) bool {
		return o.LeaseRecord == nil || at.Sub(o.Heartbeat) >= o.LeaseRecord.Lease
	}), err
}

// list combines the rows of one snapshot into listings of the named locks.
func list(names []string, at time.Time, rows []Row) []Listing {
	byName, byLock := index(rows), leasesOf(rows)
	one := func(name string) Listing {
		see := observation
		if part, ok := PartOf(name); ok && part.Partition != "" {
			see = observe
		}
		o, err := see(name, at, byName, byLock[name])
		return Listing{Observation: o, Unreadable: err}
	}
	members := map[string]Listing{}
	memberNamed := func(name string) Listing {
		if _, known := members[name]; !known {
			members[name] = one(name)
		}
		return members[name]
	}
	found := make([]Listing, len(names))
	for i, name := range names {
		l := one(name)
		if with, is := l.with(); is {
			l.follow(memberNamed(with.Name), with)
		} else if by, marked := l.pausedBy(); marked {
			if m := memberNamed(by.Name); m.IsHeld() && m.Token == by.Token {
				l.Member, l.Paused = by, true
			}
		}
		if l.Heartbeat.IsZero() {
			l.Writer = "" // a withdrawn claim leaves its id there
		}
		if row, ok := byName[name+doneSuffix]; ok {
			l.Done, l.Undone = decodeDone(row)
		}
		found[i] = l
	}
	return found
}

// with returns the member that has the partition, or had it last.
func (l Listing) with() (LeaseRef, bool) {
	part, ok := PartOf(l.Name)
	if !ok || part.Partition == "" || l.Heartbeat.IsZero() || l.Unreadable != nil {
		return LeaseRef{}, false
	}
	if l.LeaseRecord != nil {
		return MemberOf(l.LeaseRecord.With)
	}
	return MemberOf(l.Writer)
}

// pausedBy returns the member that has marked a released partition as paused (see MarkPaused).
func (l Listing) pausedBy() (LeaseRef, bool) {
	if part, _ := PartOf(l.Name); part.Partition == "" || !l.Heartbeat.IsZero() {
		return LeaseRef{}, false
	}
	return MemberOf(l.Writer)
}

// follow sets the state of a partition to that of its member.
func (l *Listing) follow(m Listing, with LeaseRef) {
	l.Member = with
	switch {
	case !m.Exists:
		l.Writer, l.Adrift = "", true
	case m.Heartbeat.IsZero() || m.Token != with.Token: // that term has ended, which freed the partition
		l.Heartbeat, l.Token, l.LeaseRecord = time.Time{}, m.Token, nil
	case l.LeaseRecord == nil:
		l.Writer = m.Holder()
	default:
		l.Heartbeat, l.Writer, l.LeaseRecord, l.Unreadable = m.Heartbeat, m.Writer, m.LeaseRecord, m.Unreadable
	}
}

// IsPart reports whether the lock belongs to a group. It does not rely on the name alone, because an ordinary lock can
// have a name of the same form.
func (l Listing) IsPart() bool {
	_, ok := PartOf(l.Name)
	return ok && (l.Member != (LeaseRef{}) || l.LeaseRecord == nil || l.LeaseRecord.ListDigest != "")
}

// lockOf returns the lock to which a lease row with this key belongs.
func lockOf(key string) (string, bool) {
	i := strings.LastIndexByte(key, '_')
	if i <= 0 || !isLeaseKey(key[:i], key) {
		return "", false
	}
	return key[:i], true
}
