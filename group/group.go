package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// MaxPartitions is the most partitions that a group can have. With thousands, keep the default lease or a longer one:
// on a busy machine, a member that claims them all, as after a start, loses a short lease before it has claimed them.
const MaxPartitions = 20_000

// Partitions is the list of a group's partitions.
type Partitions struct{ names []string }

// Named returns a list of partitions by name: each once, in any order. A name has at least one byte of UTF-8, without
// control characters, line separators and bidirectional marks. The name of its lock, "orders/partition/<name>", has at
// most 4096 bytes; the name in it is escaped as in a URL's path: "eu/west" is "eu%2Fwest", and a _ is %5F.
//
// The list may change with a rolling update, and back. While members have different lists, each partition is assigned
// to a member that has it in its list, and the shares are as even as the lists allow. So a name must mean the same work
// in all lists.
func Named(names ...string) Partitions { return Partitions{slices.Clone(names)} }

// Numbered returns the partitions "0" to "n-1". If n says which partition a key belongs to, as in hash(key) % n,
// changing n reassigns keys. In that case, stop the group first, or put n into the partitions' names and drain the old
// ones first, as docs/recipes.md shows.
func Numbered(n int) Partitions {
	names := make([]string, min(max(n, 0), MaxPartitions+1))
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return Partitions{names}
}

// Group is one member of a group. All methods may be called from any goroutine.
type Group struct {
	name    string
	config  options.Config
	err     error // what is wrong with the arguments of New; nothing works then
	table   table.Table
	spanner table.Spanner
	about   telemetry.Scope

	list      plan.List
	inventory *inventory
	byName    map[string]*entry

	runs      loop.Runs
	wake      chan struct{} // has room for one: something for the loop
	requested requested
	standing  standing
	stuck     atomic.Pointer[assignment] // of overdue work, the one revoked longest ago; nil: none is overdue
}

// New returns a member of the group name, in a table made by ddl.Create, in the database of db. It starts nothing and
// makes no RPC. If an argument is wrong, Run says so, and so does every other method that returns an error.
//
// Of the options of package spindle it takes WithLease, WithHeartbeat, WithID, WithValue, WithReclaim, WithHandover,
// WithObserver, WithLogger, WithMeterProvider and WithTracerProvider. They are about the member. The observer gets the
// events of the member's terms, and PartitionAssigned and PartitionRevoked for each partition. With WithHandover, a
// member announces that it stops, so that the others are waiting for its partitions. With WithReclaim, a process that
// is restarted under its id, with the same list, has its partitions back at once. WithWork, WithEarlyReturn,
// WithInitialDelay, WithWeight and WithIdentity are of this package.
//
// A lease must be at least five times as long as a request to Spanner takes, or no member gets any partition.
//
// Two Groups of one name in one process are two members.
func New(db *spanner.Client, tableName, name string, partitions Partitions, opts ...spindle.Option) *Group {
	c := options.New(opts)
	c.Check(db, tableName)
	for option, given := range map[string]bool{"WithLeader": c.Lead != nil, "WithStepDownOnReturn": c.StepDownOnReturn, "WithPoll": c.Poll > 0,
		"WithLockDelay": c.LockDelay > 0, "WithPriority": c.Rank > 0, "WithSharedRequests": c.Shared} {
		if given {
			c.Refuse("%s is for spindle.New: leave it out of a group", option)
		}
	}
	c.RefuseIf(table.CheckGroup(name))
	names := partitions.check(&c, name)
	g := &Group{name: name, config: c, byName: make(map[string]*entry, len(names)), list: plan.NewList(names), wake: make(chan struct{}, 1)}
	g.inventory = &inventory{byLock: make(map[string]*entry, len(names))}
	g.table, g.spanner = c.Table(db, tableName)
	g.about = c.Telemetry(tableName, name)
	g.about.Loop = true
	for _, n := range names {
		e := &entry{name: n, lock: table.PartitionName(name, n)}
		g.inventory.all, g.byName[n], g.inventory.byLock[e.lock] = append(g.inventory.all, e), e, e
	}
	if err := c.Err(); err != nil {
		g.err = fmt.Errorf("spindle: group %.64q: %w", name, err)
	}
	return g
}

// check returns the names, sorted.
func (p Partitions) check(c *options.Config, group string) []string {
	names := slices.Sorted(slices.Values(p.names))
	switch {
	case len(names) == 0:
		c.Refuse("the list of partitions is empty: give the group at least one")
	case len(names) > MaxPartitions:
		c.Refuse("more than %d partitions: make the partitions larger, or use several groups", MaxPartitions)
	}
	for i, name := range names {
		c.RefuseIf(table.CheckPartition(group, name))
		if i > 0 && names[i-1] == name && (i < 2 || names[i-2] != name) {
			c.Refuse("partition %.64q is in the list more than once: give each once", name)
		}
	}
	return slices.Compact(names)
}

// Has reports whether this member has the partition now, and under which token: the zero Token if it does not. It is
// local: no RPC, no mutex, no allocation. It becomes false the instant the partition is revoked. The answer may be
// stale when you act on it: fence writes that must not commit after another's.
//
// A program that only polls Has is not waited for when a partition moves: use WithWork, or the fence.
func (g *Group) Has(partition string) (bool, spindle.Token) {
	e := g.byName[partition]
	if e == nil {
		return false, 0
	}
	a := e.acted.Load()
	if a == nil || !a.valid() {
		return false, 0
	}
	return true, spindle.Token(a.token)
}

// Held returns the partitions that this member has now, as Has says, sorted by name. It makes no RPC.
func (g *Group) Held() []Partition {
	var held []Partition
	for _, e := range g.inventory.all {
		if a := e.acted.Load(); a != nil && a.valid() {
			held = append(held, a.partition())
		}
	}
	return held
}

// Run joins the group, and is a member in the background until ctx ends. It returns at once: nil, spindle.ErrRunning,
// or what is wrong with the arguments of New or Run; with an error, nothing was started. It continues while Spanner
// can't be reached, and after a loss of all partitions. Only ctx ends it.
//
// When ctx ends, the contexts of all work are canceled: with WithHandover, a third of a lease later. Heartbeats
// continue until all work has returned, for at most one lease, or two with WithHandover. Then everything is released at
// once, and done, if given, receives one value: nil, or why it could not be released; it then expires by itself. From
// then on no goroutine is left, the Spanner client may be closed, and Run may be called again. But if work or an
// observer still runs, Run returns ErrRunning until it has returned.
//
// Give done room for one value. An unbuffered channel is offered the value for one lease; then the value is dropped,
// with an error in the log.
//
// A new member gets partitions a lease later, unless the whole group is as young: a process that crashes whenever it
// starts takes nothing from the others.
func (g *Group) Run(ctx context.Context, done ...chan<- error) error {
	if g.err != nil {
		return g.err
	}
	if g.byName == nil {
		return errors.New("spindle: the Group was not made by New")
	}
	log := g.config.Log.With("table", g.spanner.Table, "group", g.name, "id", g.config.ID)
	return g.runs.Start(ctx, done, loop.Settings{Lease: g.config.Lease, Clock: g.config.Clock, Log: log, Wrap: g.wrap},
		func() loop.Loop { return newMember(g, log) })
}

// RunAndWait is Run, but returns only when it has ended, like a function of an errgroup: with Run's error, or with what
// done would have received.
func (g *Group) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, g.Run)
}

// Err returns what is wrong with the arguments of New, or nil. It makes no RPC.
func (g *Group) Err() error { return g.err }

// wrap adds the step and the group's name to an error, and a hint if there is one.
func (g *Group) wrap(step string, err error) error {
	return loop.Wrap(step, "group", g.name, g.spanner.Table, err)
}
