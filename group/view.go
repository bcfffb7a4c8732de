package group

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// View is a group at one instant, by Spanner's clock.
type View struct {
	At         time.Time
	Members    []Member // that were heard from within their leases, by slot
	Unassigned []string // partitions with a row and no member: they move, wait, or are in no list any more
}

// Member is a process in a group.
type Member struct {
	ID         string        // its id: WithID
	Value      string        // what it published with WithValue
	Slot       int           // of its lock, from 0
	Token      spindle.Token // of its term
	Since      time.Time     // when it joined
	Heartbeat  time.Time     // its last
	Lease      time.Duration // in its lease record
	Leaving    bool          // it has announced that it will give everything up
	List       string        // tells lists of partitions apart
	Partitions []string      // its partitions, by name
}

// Members reads who is in a group, and which partitions each member has, at one instant. It reads every row of the
// group: as a rule two for each partition, including partitions that are in no list any more. It takes one RPC for
// fewer than 50,000 rows, and one more for each further 50,000, one after the other. All RPCs read the same snapshot.
// Members does not need Run, returns at the latest when ctx ends, and may be called from any goroutine. A group without
// members is an empty View.
func Members(ctx context.Context, db *spanner.Client, tableName, name string) (View, error) {
	wrap := func(err error) error { return loop.Wrap("members", "group", name, tableName, err) }
	if err := errors.Join(table.CheckTable(tableName), table.CheckGroup(name)); err != nil {
		return View{}, wrap(err)
	}
	if db == nil {
		return View{}, wrap(errors.New("the Spanner client is nil: make one with spanner.NewClient"))
	}
	r, err := table.Table{Store: table.Spanner{DB: db, Table: tableName}}.LookAtGroup(ctx, name, table.GroupQuery{All: true})
	if err != nil {
		return View{}, wrap(err)
	}
	return viewOf(r), nil
}

func viewOf(r table.GroupSnapshot) View {
	v := View{At: r.At}
	has := map[string]*Member{} // by the key of its lease row
	for name, o := range r.Members {
		if !lives(o) {
			continue
		}
		part, _ := table.PartOf(name)
		has[table.LeaseKey(name, o.Token)] = &Member{ID: o.Holder(), Value: o.LeaseRecord.Value, Slot: part.Slot, Token: spindle.Token(o.Token),
			Since: since(o).Time(), Heartbeat: o.Heartbeat, Lease: o.LeaseRecord.Lease, Leaving: o.Leaving(), List: o.LeaseRecord.ListDigest}
	}
	for _, lock := range slices.Sorted(maps.Keys(r.Partitions)) {
		part, _ := table.PartOf(lock)
		o := r.Partitions[lock]
		if m := has[o.Writer]; m != nil && o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.With == o.Writer {
			m.Partitions = append(m.Partitions, part.Partition)
		} else {
			v.Unassigned = append(v.Unassigned, part.Partition)
		}
	}
	for _, m := range has {
		v.Members = append(v.Members, *m)
	}
	slices.SortFunc(v.Members, func(a, b Member) int { return cmp.Compare(a.Slot, b.Slot) })
	return v
}
