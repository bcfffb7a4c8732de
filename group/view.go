package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// View is the state of a group at one instant, by Spanner's clock.
type View struct {
	At         time.Time
	Members    []Member // members that have sent a heartbeat within their lease, sorted by slot
	Unassigned []string // partitions that have a row but no member, because they are moving, waiting, or no longer in any list; excludes paused and unreadable partitions
	Unreadable []string // partitions that may have a member, because a lease row is garbled or was written by a newer version: the partition's or its member's
}

// Member is a process in a group.
type Member struct {
	ID         string        // set by WithID, or generated
	Value      string        // set by WithValue
	Slot       int           // the number of its slot, from 0
	Token      spindle.Token // the token of its term
	Since      time.Time     // when it joined the group
	Heartbeat  time.Time     // when it sent its last heartbeat
	Lease      time.Duration // the duration of its lease
	Leaving    bool          // it has announced that it is leaving
	List       string        // the digest of its list; members with the same digest have the same list
	Partitions []string      // its partitions, sorted by name
	Paused     []string      // partitions that nobody works on because this member's program has paused them (see Group.Pause)
}

// Members returns the members of a group and the partitions of each member, all as of the same instant. It reads every
// row of the group, in one RPC. Usually, there are two rows for each partition, including partitions that are no longer
// in any list. Members whose lease rows can't be read are left out.
//
// Members does not require a running Group.
func Members(ctx context.Context, db *spanner.Client, tableName, name string) (View, error) {
	wrap := func(err error) error { return loop.Wrap("members", "group", name, tableName, err) }
	if err := errors.Join(table.CheckTable(tableName), table.CheckGroup(name)); err != nil {
		return View{}, wrap(err)
	}
	if db == nil {
		return View{}, wrap(errors.New("the Spanner client is nil; create one with spindle.Open"))
	}
	r, err := table.Table{Store: table.Spanner{DB: db, Table: tableName}}.LookAtGroup(ctx, name, table.GroupQuery{All: true})
	if err != nil {
		return View{}, wrap(err)
	}
	return viewOf(r), nil
}

func viewOf(r table.GroupSnapshot) View {
	v := View{At: r.At}
	has := map[string]*Member{} // keyed by the key of the member's lease row
	for name, o := range r.Members {
		if !plan.Lives(o) {
			continue
		}
		part, _ := table.PartOf(name)
		has[table.LeaseKey(name, o.Token)] = &Member{ID: o.Holder(), Value: o.LeaseRecord.Value, Slot: part.Slot, Token: spindle.Token(o.Token),
			Since: plan.Since(o).Time(), Heartbeat: o.Heartbeat, Lease: o.LeaseRecord.Lease, Leaving: o.Leaving(), List: o.LeaseRecord.ListDigest}
	}
	for lock, o := range r.Partitions {
		part, _ := table.PartOf(lock)
		switch m := has[o.Writer]; {
		case m != nil && o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.With == o.Writer:
			m.Partitions = append(m.Partitions, part.Partition)
		case m != nil && o.Exists && o.Heartbeat.IsZero():
			m.Paused = append(m.Paused, part.Partition)
		case mayHaveMember(r, lock, o):
			v.Unreadable = append(v.Unreadable, part.Partition)
		default:
			v.Unassigned = append(v.Unassigned, part.Partition)
		}
	}
	slices.Sort(v.Unassigned)
	slices.Sort(v.Unreadable)
	for _, m := range has {
		slices.Sort(m.Partitions)
		slices.Sort(m.Paused)
		v.Members = append(v.Members, *m)
	}
	slices.SortFunc(v.Members, func(a, b Member) int { return cmp.Compare(a.Slot, b.Slot) })
	return v
}

// mayHaveMember reports whether a partition may have a member although the rows that are readable name none.
func mayHaveMember(r table.GroupSnapshot, lock string, o table.Observation) bool {
	if with, is := table.MemberOf(o.Writer); is && r.Unreadable[with.Name] != nil {
		m := r.Members[with.Name]
		return !m.Exists || !plan.Over(m, with.Token)
	}
	return r.Unreadable[lock] != nil && !(o.Exists && o.Heartbeat.IsZero())
}
