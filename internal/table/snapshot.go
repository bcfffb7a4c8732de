package table

import (
	"context"
	"time"
)

// A GroupQuery selects the rows of a group that a member reads in one poll. All rows are read in a single snapshot,
// because rows from different snapshots could contradict each other. The head of the plan is always included.
type GroupQuery struct {
	Members    bool       // all members, with their lease records
	Body       bool       // the body of the plan
	Leases     []LeaseRef // check whether these lease rows exist
	Rows       []string   // the lock rows of these partitions
	WithLeases []string   // the lock rows and all lease rows of these partitions
	All        bool       // all of the above, for every partition that has a row
}

// A GroupSnapshot is the result of a GroupQuery.
type GroupSnapshot struct {
	At          time.Time
	Members     map[string]Observation // by the name of their slot; nil if not read
	Plan        Token                  // the token of the published plan, or 0 if there is none
	Body        string                 // the body of the plan if requested; "" if no body has the head's token
	LeaseExists map[LeaseRef]bool
	Partitions  map[string]PartitionRow
	Unreadable  map[string]error // by the names of members and partitions whose lease rows can't be read
}

// A PartitionRow is a partition in a snapshot.
type PartitionRow struct {
	Observation
	LeasesRead bool // its lease rows were also read
}

// manyRanges is the number of partitions above which it is cheaper to read all partitions of the group as one range
// than to read a separate range for each partition.
const manyRanges = 2000

// LookAtGroup reads what the query asks for in one RPC.
func (t Table) LookAtGroup(ctx context.Context, group string, q GroupQuery) (GroupSnapshot, error) {
	var rows []Row
	var at time.Time
	for about := time.Now(); ; about = at {
		var err error
		if rows, at, err = t.Store.Read(ctx, "look", Present, q.keys(group, about)); err != nil {
			return GroupSnapshot{}, err
		}
		if q.All || !at.After(about.Add(12*time.Hour)) {
			break
		}
	}
	s := GroupSnapshot{At: at, LeaseExists: map[LeaseRef]bool{}, Partitions: map[string]PartitionRow{}, Unreadable: map[string]error{}}
	read := RowsAt(at, rows)
	s.Plan, s.Body = planIn(group, read)
	slots, partitions := partsIn(group, rows)
	if q.All {
		q.Members, q.WithLeases = true, partitions
	}
	if q.Members {
		s.Members = map[string]Observation{}
		for _, name := range slots {
			o, err := read.Observe(name)
			s.Members[name] = o
			s.note(name, err)
		}
	}
	for _, h := range q.Leases {
		_, s.LeaseExists[h] = read.byName[h.Key()]
	}
	for _, name := range q.Rows {
		s.see(name, PartitionRow{Observation: read.lockRow(name)}, nil)
	}
	for _, name := range q.WithLeases {
		o, err := read.Observe(name)
		s.see(name, PartitionRow{o, true}, err)
	}
	return s, nil
}

func (s GroupSnapshot) see(name string, p PartitionRow, err error) {
	s.Partitions[name] = p
	s.note(name, err)
}

func (s GroupSnapshot) note(name string, err error) {
	if err != nil {
		s.Unreadable[name] = err
	}
}

// keys returns the keys that the query reads. The argument about is the approximate current time. Lease rows are read
// only if their tokens are at most one day later.
func (q GroupQuery) keys(group string, about time.Time) Keys {
	if q.All {
		return Keys{All: true, Prefix: GroupPrefix(group)}
	}
	keys := Keys{Names: []string{planHead(group)}}
	if q.Body {
		keys.Names = append(keys.Names, planBody(group))
	}
	if q.Members {
		keys.Ranges = append(keys.Ranges, MembersOf(GroupPrefix(group)))
	}
	for _, h := range q.Leases {
		keys.Names = append(keys.Names, h.Key())
	}
	keys.Names = append(keys.Names, q.Rows...)
	if len(q.WithLeases) > manyRanges {
		all := PartitionName(group, "")
		keys.Ranges = append(keys.Ranges, Range{all, all + "\U0010FFFF"})
		return keys
	}
	more := WithLeases(q.WithLeases, about)
	keys.Names, keys.Ranges = append(keys.Names, more.Names...), append(keys.Ranges, more.Ranges...)
	return keys
}

// MembersOf returns the range of the rows of all members of a group, given the prefix of the names of its locks.
func MembersOf(prefix string) Range { return Range{prefix + "member/0000", prefix + "member/9999_~"} }

// partsIn returns the members and partitions of the group that have a row, even if it is only a lease row.
func partsIn(group string, rows []Row) (slots, partitions []string) {
	seen := map[string]bool{}
	for _, row := range rows {
		_, name := RoleOf(row.Name)
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
