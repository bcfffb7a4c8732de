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

// MaxPartitions is the maximum number of partitions in a group. For a group with thousands of partitions, keep the
// default lease or use a longer one. When a member on a busy machine has to claim all of them, for example at startup,
// a short lease can expire before the member is done.
const MaxPartitions = 20_000

// Partitions is the list of a group's partitions.
type Partitions struct{ names []string }

// Named returns a list of partitions with the given names, in any order. Each name must be given only once. A name is
// at least one byte of UTF-8, without control characters, line separators and bidirectional marks. In the name of the
// partition's lock, "orders/partition/<name>", the partition's name is escaped as in a URL path: "eu/west" becomes
// "eu%2Fwest", and "_" becomes "%5F". The name of the lock can have at most 4096 bytes.
//
// The list can be changed by a rolling update, and changed back. While members have different lists, each partition is
// assigned to a member that has it in its list, and the shares are as even as the lists allow. A name must therefore
// mean the same work in all lists.
func Named(names ...string) Partitions { return Partitions{slices.Clone(names)} }

// Numbered returns the partitions "0" to "n-1". If n determines which partition a key belongs to, as in hash(key) % n,
// changing n reassigns keys. To change n safely, stop the group first. Alternatively, put n into the names of the
// partitions, and drain the old ones before the new ones begin, as docs/recipes.md shows.
func Numbered(n int) Partitions {
	names := make([]string, min(max(n, 0), MaxPartitions+1))
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return Partitions{names}
}

// Group is one member of a group. Its methods are safe for concurrent use.
type Group struct {
	name    string
	config  options.Config
	err     error // what is wrong with the arguments of New; not nil: the Group is unusable
	table   table.Table
	spanner table.Spanner
	about   telemetry.Scope

	list      plan.List
	inventory *inventory
	byName    map[string]*entry

	runs      loop.Runs
	wake      chan struct{} // has room for one; wakes the loop
	requested requested
	standing  standing
	stuck     atomic.Pointer[assignment] // the overdue work that was revoked longest ago; nil: none is overdue
}

// New returns a member of the group with the given name. The lock table, created by ddl.Create, is in db's database.
// New starts nothing and makes no RPC. If an argument is invalid, Run and every other method that returns an error
// reports it.
//
// From package spindle, New accepts WithLease, WithHeartbeat, WithID, WithValue, WithReclaim, WithHandover,
// WithObserver, WithLogger, WithMeterProvider and WithTracerProvider. These options apply to the member. The observer
// receives the events of the member's terms, and PartitionAssigned and PartitionRevoked for each partition. With
// WithHandover, a member that is stopping announces this first, so that the other members are already waiting for its
// partitions. With WithReclaim, a process that restarts with the same id and the same list gets its partitions back
// immediately. This package adds WithWork, WithEarlyReturn, WithInitialDelay, WithWeight and WithIdentity.
//
// The lease must be at least five times as long as a request to Spanner takes. With a shorter lease, no member gets any
// partition.
//
// Two Groups with the same name in one process are two members.
func New(db *spanner.Client, tableName, name string, partitions Partitions, opts ...spindle.Option) *Group {
	c := options.New(opts)
	c.Check(db, tableName)
	for option, given := range map[string]bool{"WithLeader": c.Lead != nil, "WithStepDownOnReturn": c.StepDownOnReturn, "WithPoll": c.Poll > 0,
		"WithLockDelay": c.LockDelay > 0, "WithPriority": c.Rank > 0, "WithSharedRequests": c.Shared} {
		if given {
			c.Refuse("%s is for spindle.New and does not apply to a group", option)
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

// check returns the names in sorted order. It refuses invalid ones.
func (p Partitions) check(c *options.Config, group string) []string {
	names := slices.Sorted(slices.Values(p.names))
	switch {
	case len(names) == 0:
		c.Refuse("the list of partitions is empty; a group needs at least one partition")
	case len(names) > MaxPartitions:
		c.Refuse("more than %d partitions; use larger partitions or several groups", MaxPartitions)
	}
	for i, name := range names {
		c.RefuseIf(table.CheckPartition(group, name))
		if i > 0 && names[i-1] == name && (i < 2 || names[i-2] != name) {
			c.Refuse("partition %.64q is in the list more than once", name)
		}
	}
	return slices.Compact(names)
}

// Has reports whether this member has the partition now, and under which token. If the member does not have it, the
// token is zero. Has is a local check, without an RPC, a mutex or an allocation. It returns false from the instant the
// partition is revoked. By the time you act on the answer, it may be out of date, so fence every write that must not
// commit after a write by the partition's next holder.
//
// If a program only polls Has, the partition can move while the program still works on it. To make the group wait, use
// WithWork. Otherwise fence the writes.
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

// Held returns the partitions that this member has now, by the same rule as Has, sorted by name. It makes no RPC.
func (g *Group) Held() []Partition {
	var held []Partition
	for _, e := range g.inventory.all {
		if a := e.acted.Load(); a != nil && a.valid() {
			held = append(held, a.partition())
		}
	}
	return held
}

// Run joins the group, and keeps this member in it in the background until ctx ends. Run returns immediately. It
// returns nil, spindle.ErrRunning, or an error that describes an invalid argument of New or Run. If it returns an
// error, nothing was started. The member keeps trying while Spanner cannot be reached, and after it has lost all its
// partitions. It stops only when ctx ends.
//
// When ctx ends, the contexts of all work are canceled. With WithHandover, this happens a third of a lease later.
// Heartbeats continue until all work has returned, for at most one lease duration, or two with WithHandover. Then the
// member releases everything in one commit. If done is given, it receives one value: nil, or the reason why the release
// failed, in which case everything is freed when the lease expires. From then on no goroutine is left, the Spanner
// client may be closed, and Run may be called again. However, if work or an observer is still running, Run returns
// ErrRunning until that has returned.
//
// The done channel should have a buffer of one. On an unbuffered channel, the value is offered for one lease duration.
// It is then dropped, and an error is logged.
//
// Unless the whole group is new, a new member gets partitions only after one lease duration. A process that crashes
// each time it starts therefore takes no partition from the other members.
func (g *Group) Run(ctx context.Context, done ...chan<- error) error {
	if g.err != nil {
		return g.err
	}
	if g.byName == nil {
		return errors.New("spindle: the Group was not created by New")
	}
	log := g.config.Log.With("table", g.spanner.Table, "group", g.name, "id", g.config.ID)
	return g.runs.Start(ctx, done, loop.Settings{Lease: g.config.Lease, Clock: g.config.Clock, Log: log, Wrap: g.wrap},
		func() loop.Loop { return newMember(g, log) })
}

// RunAndWait is like Run, but it blocks until the member has stopped, so it can be passed to errgroup.Group.Go. It
// returns Run's error, or the value that done would have received.
func (g *Group) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, g.Run)
}

// Err returns an error that describes what is wrong with the arguments of New, or nil. It makes no RPC.
func (g *Group) Err() error { return g.err }

// wrap adds the step and the group's name to an error, and a hint if there is one.
func (g *Group) wrap(step string, err error) error {
	return loop.Wrap(step, "group", g.name, g.spanner.Table, err)
}
