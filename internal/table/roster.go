package table

import (
	"context"
	"time"
)

// A Scope is what a member reads of its group, in one snapshot: nothing may be concluded from two.
type Scope struct {
	Members bool     // all members, with their promises
	Holds   []Hold   // whether the lease rows of these are there
	Rows    []string // the lock rows of these partitions
	Survey  []string // the lock rows and all lease rows of these
	All     bool     // every member and every partition that has a row
}

// A Roster is what a snapshot says of a group.
type Roster struct {
	At         time.Time
	Members    map[string]Observation // by the name of their slot; nil: not read
	Good       map[Hold]bool
	Partitions map[string]Sighting
	Unreadable map[string]error // by name: members and partitions whose lease rows can't be read
}

// A Sighting is a partition in a snapshot.
type Sighting struct {
	Observation
	Surveyed bool // its lease rows were read too
}

// manyRanges is when one range over all partitions of a group is cheaper to read than one for each.
const manyRanges = 2000

// Roster reads the scope of a group in one call of Store.Read, or in two if the local clock is half a day behind. Only
// the latter counts. Such a call is one RPC, and of All the rows more if they fill a page.
func (t Table) Roster(ctx context.Context, group string, s Scope) (Roster, error) {
	var rows []Row
	var at time.Time
	for about := time.Now(); ; about = at {
		var err error
		if rows, at, err = t.Store.Read(ctx, "roster", Present, s.keys(group, about)); err != nil {
			return Roster{}, err
		}
		if !at.After(about.Add(12 * time.Hour)) {
			break
		}
	}
	r := Roster{At: at, Good: map[Hold]bool{}, Partitions: map[string]Sighting{}, Unreadable: map[string]error{}}
	byName, byLock := index(rows), leasesOf(rows)
	slots, partitions := partsIn(group, rows)
	if s.All {
		s.Members, s.Survey = true, partitions
	}
	if s.Members {
		r.Members = map[string]Observation{}
		for _, name := range slots {
			o, err := observe(name, at, byName, byLock[name])
			r.Members[name] = o
			r.note(name, err)
		}
	}
	for _, h := range s.Holds {
		_, r.Good[h] = byName[h.Key()]
	}
	for _, name := range s.Rows {
		r.see(name, Sighting{Observation: lockRow(name, at, byName)}, nil)
	}
	for _, name := range s.Survey {
		o, err := observe(name, at, byName, byLock[name])
		r.see(name, Sighting{o, true}, err)
	}
	return r, nil
}

func (r Roster) see(name string, s Sighting, err error) {
	r.Partitions[name] = s
	r.note(name, err)
}

func (r Roster) note(name string, err error) {
	if err != nil {
		r.Unreadable[name] = err
	}
}

// keys are those of the scope. The time only bounds what is read of lease rows: they are those of tokens up to a day
// later.
func (s Scope) keys(group string, about time.Time) Keys {
	var keys Keys
	if s.All {
		return Keys{All: true, Prefix: GroupPrefix(group)}
	}
	if s.Members {
		keys.Ranges = append(keys.Ranges, membersOf(GroupPrefix(group)))
	}
	for _, h := range s.Holds {
		keys.Names = append(keys.Names, h.Key())
	}
	keys.Names = append(keys.Names, s.Rows...)
	if len(s.Survey) > manyRanges {
		all := PartitionName(group, "")
		keys.Ranges = append(keys.Ranges, Range{all, all + "\U0010FFFF"})
		return keys
	}
	more := withLeases(s.Survey, about)
	keys.Names, keys.Ranges = append(keys.Names, more.Names...), append(keys.Ranges, more.Ranges...)
	return keys
}

// membersOf are the rows of all members of the group whose locks' names begin so.
func membersOf(prefix string) Range { return Range{prefix + "member/0000", prefix + "member/9999_~"} }

// partsIn are the members and partitions of the group that have a row, be it only a lease row.
func partsIn(group string, rows []Row) (slots, partitions []string) {
	seen := map[string]bool{}
	for _, row := range rows {
		name := row.Name
		if lock, ok := lockOf(name); ok {
			name = lock
		}
		part, ok := PartOf(name)
		if !ok || part.Group != group || seen[name] {
			continue
		}
		seen[name] = true
		if part.Partition == "" {
			slots = append(slots, name)
		} else {
			partitions = append(partitions, name)
		}
	}
	return slots, partitions
}

// leasesOf are the lease rows, by the lock that they are of.
func leasesOf(rows []Row) map[string][]Row {
	leases := map[string][]Row{}
	for _, row := range rows {
		if lock, ok := lockOf(row.Name); ok {
			leases[lock] = append(leases[lock], row)
		}
	}
	return leases
}
