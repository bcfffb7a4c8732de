package table

import (
	"context"
	"slices"
	"strings"
	"time"
)

// State is what a lock is at one instant, by Spanner's clock.
type State string

// The states.
const (
	Free        State = "free"        // it has no row: nobody ever claimed it, or somebody deleted it
	Held        State = "held"        // its holder was heard from within its lease
	Leaving     State = "leaving"     // held, and its holder has announced that it will give it up
	Expired     State = "expired"     // its holder was not heard from within its lease, and nobody has claimed it since
	Released    State = "released"    // its last holder gave it back
	Unconfirmed State = "unconfirmed" // it is claimed, and has no lease row that lets the claimant act
	Orphaned    State = "orphaned"    // it has a lease row and no lock row, or its member has no row: somebody deleted that by hand
	Unreadable  State = "unreadable"  // its lease row does not say how long the holder may act, or says it in a newer format
)

// Listing is a lock as an operator sees it, together with its lease row. A partition of a group has its member's
// heartbeat, holder and lease record, and its own token.
type Listing struct {
	Observation
	Unreadable error    // why the lease record is not known
	Done       Done     // what was done last under it
	Undone     error    // why that is not known
	Member     LeaseRef // for a partition: the member that has it, or had it last
	Adrift     bool     // that member has no row

	Waiters []Ticket // in their order; for a semaphore, only its first slot in a list has them
	Cut     bool     // more may wait: not all tickets were read
}

// State returns the state of the lock.
func (l Listing) State() State {
	switch {
	case l.Unreadable != nil:
		return Unreadable
	case !l.Exists && len(l.OrphanLeases) > 0, l.Adrift: // nobody may act on free rows
		return Orphaned
	case !l.Exists:
		return Free
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

// List reads every lock whose name begins with the prefix at one instant, in the order of their names. Without all, it
// leaves out released locks, and locks of which only what was done last is known, but not a group's, which tell of each
// other. It lists a lock with waiters in any case. A row that can't be read does not hide the others.
func (t Table) List(ctx context.Context, prefix string, all bool) ([]Listing, time.Time, error) {
	found, at, err := t.listAll(ctx, prefix, !all)
	if all || err != nil {
		return found, at, err
	}
	return slices.DeleteFunc(found, func(l Listing) bool { return l.idle() }), at, nil
}

// ListWith is List and the named locks, whatever their state: it reads those that it did not find by their names, a
// moment later. Without all, it also lists a lock of which what was done last is known, as free even if it was
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
		if j, is := slices.BinarySearchFunc(found, l.Name, byName); is { // it has waiters, or something was done under it
			more[i].Waiters = found[j].Waiters
		}
	}
	again := func(l Listing) bool { _, is := slices.BinarySearch(missing, l.Name); return is }
	found = append(slices.DeleteFunc(found, again), more...)
	slices.SortFunc(found, func(a, b Listing) int { return byName(a, b.Name) })
	return found, at, nil
}

func byName(l Listing, name string) int { return strings.Compare(l.Name, name) }

// idle reports whether nobody holds the lock or waits for it.
func (l Listing) idle() bool {
	return (l.State() == Released || l.State() == Free) && !l.IsPart() && len(l.Waiters) == 0
}

// listAll lists the locks with the prefix; if busy, it leaves out rows of released ones.
func (t Table) listAll(ctx context.Context, prefix string, busy bool) ([]Listing, time.Time, error) {
	keys := Keys{All: true, Prefix: prefix, Busy: busy}
	if members, ok := membersBeside(prefix); ok {
		keys = Keys{Ranges: []Range{{prefix, prefix + "\U0010FFFF"}, members}}
	}
	rows, at, err := t.Store.Read(ctx, "list", Present, keys)
	if err != nil {
		return nil, time.Time{}, err
	}
	rows, q := queuedIn(rows)
	names := namesIn(rows, prefix)
	if prefix != "" {
		tickets, err := t.tickets(ctx, prefix, names)
		if err != nil {
			return nil, time.Time{}, err
		}
		_, q = queuedIn(tickets)
	}
	found, err := t.listQueued(ctx, prefix, names, at, rows, q, keys.Busy)
	if err == nil && keys.Busy {
		err = t.adopt(ctx, found, at)
	}
	return found, at, err
}

// adopt rereads the locks of which only lease rows were found: a look without released locks has left out their own
// rows.
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

// namesIn returns the names with the prefix of all locks that rows tell of.
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
		if strings.HasPrefix(name, prefix) { // not the lease row alone, as that of a is with a_
			names[name] = true
		}
	}
	return names
}

// membersBeside returns the members of a group if the prefix matches its partitions, and not its members.
func membersBeside(prefix string) (Range, bool) {
	const partitions = "partition/"
	group, rest, ok := strings.Cut(prefix, "/")
	if !ok || rest == "" || !strings.HasPrefix(rest, partitions) && !strings.HasPrefix(partitions, rest) {
		return Range{}, false
	}
	return membersOf(group + "/"), true
}

// ListOne is List for one name, in one RPC, and more if many wait for it or the local clock is a day behind. Then it
// has the first waiters only.
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
	rows, q := queuedIn(rows)
	l := list([]string{name}, at, rows)[0]
	l.attach(q, queuesOf(name))
	for _, tickets := range q {
		l.Cut = l.Cut || len(tickets) == MostTickets
	}
	return l
}

// Holders reads the held locks in the range, with their lease records, in one RPC. Other locks' names may be in the
// range too: is reports whether a name is meant.
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

// list folds rows of one snapshot into the locks of these names.
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
	found := make([]Listing, len(names))
	for i, name := range names {
		l := one(name)
		if with, is := l.with(); is {
			if _, known := members[with.Name]; !known {
				members[with.Name] = one(with.Name)
			}
			l.follow(members[with.Name], with)
		}
		if l.Heartbeat.IsZero() {
			l.Writer = "" // it is the id of a withdrawn claim
		}
		if row, ok := byName[name+doneSuffix]; ok {
			l.Done, l.Undone = decodeDone(row)
		}
		found[i] = l
	}
	return found
}

// with returns the member that has a partition, or had it last.
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

// follow gives a partition its member's state.
func (l *Listing) follow(m Listing, with LeaseRef) {
	l.Member = with
	switch {
	case !m.Exists:
		l.Writer, l.Adrift = "", true
	case m.Heartbeat.IsZero() || m.Token != with.Token: // over: it was free by then
		l.Heartbeat, l.Token, l.LeaseRecord = time.Time{}, m.Token, nil
	case l.LeaseRecord == nil:
		l.Writer = m.Holder()
	default:
		l.Heartbeat, l.Writer, l.LeaseRecord, l.Unreadable = m.Heartbeat, m.Writer, m.LeaseRecord, m.Unreadable
	}
}

// IsPart reports whether the lock belongs to a group. A plain lock may have a name that a group would give.
func (l Listing) IsPart() bool {
	_, ok := PartOf(l.Name)
	return ok && (l.Member != (LeaseRef{}) || l.LeaseRecord == nil || l.LeaseRecord.ListDigest != "")
}

// lockOf returns the lock that a key is the lease row of.
func lockOf(key string) (string, bool) {
	i := strings.LastIndexByte(key, '_')
	if i <= 0 || !isLeaseKey(key[:i], key) {
		return "", false
	}
	return key[:i], true
}
