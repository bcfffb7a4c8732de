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
	WithLeases []string   // the lock rows and all lease rows of these partitions
	All        bool       // all of the above, for every partition that has a row
}

type GroupSnapshot struct {
	At          time.Time
	Members     map[string]Observation // by the name of their slot; nil if not read
	Plan        Token                  // the token of the published plan, or 0 if there is none
	Body        string                 // the body of the plan if requested; "" if no body has the head's token
	LeaseExists map[LeaseRef]bool
	Partitions  map[string]Observation
	Unreadable  map[string]error // why a lease row can't be decoded, by the name of its member or partition
}

// manyRanges is the number of partitions above which it is cheaper to read all partitions of the group as one range
// than to read a separate range for each partition.
const manyRanges = 2000

// LookAtGroup reads what the query asks for, normally in one RPC (see ReadAbout).
func (t Table) LookAtGroup(ctx context.Context, group string, q GroupQuery) (GroupSnapshot, error) {
	read, err := t.ReadAbout(ctx, "look", time.Now(), func(about time.Time) Keys { return q.keys(group, about) })
	if err != nil {
		return GroupSnapshot{}, err
	}
	s := GroupSnapshot{At: read.At, LeaseExists: map[LeaseRef]bool{}, Partitions: map[string]Observation{}, Unreadable: map[string]error{}}
	s.Plan = TokenAt(read.Row(planHead(group)).Token)
	if body := read.Row(planBody(group)); TokenAt(body.Token) == s.Plan {
		s.Body = body.Writer
	}
	observe := func(name string) Observation {
		o, err := read.Observe(name)
		if err != nil {
			s.Unreadable[name] = err
		}
		return o
	}
	if q.Members || q.All {
		s.Members = map[string]Observation{}
	}
	for _, name := range read.partsOf(group) {
		if part, _ := PartOf(name); part.Partition != "" {
			if q.All {
				q.WithLeases = append(q.WithLeases, name)
			}
		} else if s.Members != nil {
			s.Members[name] = observe(name)
		}
	}
	for _, h := range q.Leases {
		_, s.LeaseExists[h] = read.byName[h.Key()]
	}
	for _, name := range q.WithLeases {
		s.Partitions[name] = observe(name)
	}
	return s, nil
}

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
	if len(q.WithLeases) > manyRanges {
		all := PartitionName(group, "")
		keys.Ranges = append(keys.Ranges, Range{all, all + "\U0010FFFF"})
		return keys
	}
	more := WithLeases(q.WithLeases, about)
	keys.Names, keys.Ranges = append(keys.Names, more.Names...), append(keys.Ranges, more.Ranges...)
	return keys
}

// MembersOf returns the range of a group's member rows. The names of all locks of the group begin with prefix.
func MembersOf(prefix string) Range { return Range{prefix + "member/0000", prefix + "member/9999_~"} }

// partsOf returns the names of the group's members and partitions that have a row, even if it is only a lease row.
func (r Rows) partsOf(group string) (names []string) {
	seen := map[string]bool{}
	for _, row := range r.All {
		_, name := RoleOf(row.Name)
		if part, ok := PartOf(name); ok && part.Group == group && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Members of a group publish their plan in two rows, the head and the body. One commit writes both rows, so both have
// the same token. Members read the head in every poll. They read the body only if they have not yet decoded the body
// that has the head's token. The rows have no heartbeat, and no lock can have their names.
//
// The plan says only which member should hold each partition. The partition's own rows show which member actually holds
// it.

const planSuffix = "!plan"

func planHead(group string) string { return GroupPrefix(group) + planSuffix }

func planBody(group string) string { return GroupPrefix(group) + "body" + planSuffix }

// PublishPlan replaces the published plan and records the caller's id. The argument seen is the token of the plan that
// the caller has read, or 0 if there was none. PublishPlan fails with ErrChanged if another member has published a plan
// in the meantime.
func (t Table) PublishPlan(ctx context.Context, group string, seen Token, by, body string) (Token, error) {
	at, err := t.change(ctx, "publish", Keys{Names: []string{planHead(group)}}, func(rows Rows) ([]Write, error) {
		if TokenAt(rows.byName[planHead(group)].Token) != seen {
			return nil, ErrChanged
		}
		return []Write{
			{Kind: Put, Name: planHead(group), Set: []Cell{{ColToken, Now}, {ColWriter, by}}},
			{Kind: Put, Name: planBody(group), Set: []Cell{{ColToken, Now}, {ColWriter, body}}},
		}, nil
	})
	return TokenAt(at), changed(err)
}
