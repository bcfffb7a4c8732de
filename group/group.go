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
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// MaxPartitions is the maximum number of partitions in a group. A group with thousands of partitions should not have a
// shorter lease than the default, because one member may have to claim all the partitions.
const MaxPartitions = 20_000

// Partitions is the list of a group's partitions.
type Partitions struct{ names []string }

// Named returns a list of partitions with the given names. The order of the names does not matter, but each name must
// be unique. A name must be valid UTF-8 and must not be empty. It must not contain control characters, line separators
// or bidirectional marks.
//
// Each partition is a lock with a name such as "orders/partition/17". In that name, the partition's name is escaped
// like part of a URL path, so "eu/west" becomes "eu%2Fwest". An underscore becomes "%5F". The name of the lock can be
// at most 4096 bytes long.
//
// A rolling update can change the list, and can change it back. A group's members can have up to six different lists at
// a time. Each partition is assigned to a member that has the partition in its list, and the shares are as even as the
// lists allow. A partition's name must therefore identify the same work in all lists.
func Named(names ...string) Partitions { return Partitions{slices.Clone(names)} }

// Numbered returns partitions with the names "0", "1" and so on, n in all. If a program uses n to map keys to
// partitions, for example with hash(key)%n, a different n maps most keys to a different partition. To change n safely,
// stop the group first. Alternatively, include n in the partition names, and drain the old partitions before work on
// the new ones begins, as docs/recipes.md shows.
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

	partitions []*partition // sorted by name
	byName     map[string]*partition

	runs      loop.Runs
	inbox     *loop.Inbox[outcome] // for the loop
	requested requested
	standing  standing
}

// partition is a partition as seen by the methods of a Group. Any goroutine may read it.
type partition struct {
	name  string
	acted atomic.Pointer[assignment] // the assignment that is acted on; nil: none
}

// holds returns the assignment under which the partition may be acted on, or nil.
func (p *partition) holds() *assignment {
	if a := p.acted.Load(); a != nil && a.valid() {
		return a
	}
	return nil
}

// New returns a member of the group with the given name. The lock table must exist in db's database; ddl.Create creates
// it. New starts nothing and makes no RPC. If an argument is invalid, Run and all other methods that return an error
// report the problem.
//
// The options of package spindle apply to the member. In addition:
//
//   - With WithObserver, the observer also receives PartitionAssigned and PartitionRevoked for each partition.
//   - With WithHandover, a member announces in advance that it is going to stop, so that the other members can claim
//     its partitions as soon as they are released.
//   - With WithReclaim, a process that restarts with the same ID and the same list gets its partitions back
//     immediately, unless its last term was shorter than its lease.
//
// The lease must be at least five times as long as a request to Spanner takes. With a shorter lease, members may be
// unable to claim partitions.
//
// Two Groups with the same name are two members of that group, even in one process.
func New(db *spanner.Client, tableName, name string, partitions Partitions, opts ...Option) *Group {
	c := options.New(opts)
	c.Check(db, tableName)
	c.Require(c.Stall == 0 || c.Work != nil, "WithStall(%v) needs WithWork, because it watches the work's progress", c.Stall)
	c.RefuseIf(table.CheckGroup(name))
	names := partitions.check(&c, name)
	g := &Group{name: name, config: c, byName: make(map[string]*partition, len(names)), inbox: loop.NewInbox[outcome]()}
	g.table, g.spanner = g.config.Table(db, tableName)
	g.about = c.Telemetry(tableName, name)
	g.about.Loop = true
	g.requested.weight = c.Weight
	for _, n := range names {
		p := &partition{name: n}
		g.partitions, g.byName[n] = append(g.partitions, p), p
	}
	if err := c.Err(); err != nil {
		g.err = fmt.Errorf("spindle: group %.64q: %w", name, err)
	}
	return g
}

// check returns the names, sorted and without duplicates. It records in c what is wrong with the list.
func (p Partitions) check(c *options.Config, group string) []string {
	names := slices.Sorted(slices.Values(p.names))
	c.Require(len(names) > 0, "the list of partitions is empty; a group needs at least one partition")
	c.Require(len(names) <= MaxPartitions, "the list has more than %d partitions; use larger partitions or several groups", MaxPartitions)
	for i, name := range names {
		c.RefuseIf(table.CheckPartition(group, name))
		if i > 0 && names[i-1] == name && (i < 2 || names[i-2] != name) {
			c.Refuse("partition %.64q is in the list more than once", name)
		}
	}
	return slices.Compact(names)
}

// Has reports whether this member currently owns the partition, and returns its token. If the member does not own the
// partition, the token is zero. Has returns false as soon as the partition is revoked or the member's term ends. It is
// a local check, and needs no RPC, mutex or allocation.
//
// The answer may be out of date by the time the program acts on it. Fence every write that must not be committed after
// the next owner's writes. Without WithWork, a partition can move while the program is still acting on it.
func (g *Group) Has(partition string) (bool, spindle.Token) {
	if p := g.byName[partition]; p != nil {
		if a := p.holds(); a != nil {
			return true, spindle.Token(a.hold.Token)
		}
	}
	return false, 0
}

// Held returns the partitions that this member currently owns, sorted by name. Like Has, it makes no RPC.
func (g *Group) Held() []Partition {
	var held []Partition
	for _, p := range g.partitions {
		if a := p.holds(); a != nil {
			held = append(held, a.partition())
		}
	}
	return held
}

// Run makes this process join the group and stay in it until ctx ends. Run returns immediately, and the member works in
// the background. Run returns nil, spindle.ErrRunning, or an error that describes an invalid argument of New or Run. If
// it returns an error, nothing was started. Once started, the member keeps trying until ctx ends, even if Spanner
// cannot be reached.
//
// When ctx ends, the contexts of all work are canceled. With WithHandover, this happens about a third of a lease later.
// The member continues to send heartbeats until all work has returned, for at most one lease duration, or two with
// WithHandover. If some work does not return promptly, the other partitions are released without waiting for it. Once
// all work has returned, one commit releases everything that is left.
//
// If done is given, it receives one value after the member has stopped. The value is nil, or an error if not everything
// could be released or if the observer has not returned in time. Partitions that could not be released become free when
// the member's lease expires. Once the value has been sent, no goroutine is left, the Spanner client may be closed, and
// Run may be called again. The only exception is work or an observer that has not returned: until it returns, Run
// returns ErrRunning.
//
// The done channel should have a buffer of one. If no goroutine receives the value within one lease duration, the value
// is dropped and an error is logged.
//
// A new member gets no partitions during its first lease duration, unless the whole group is new or WithReclaim gives
// the member its partitions back. A process that crashes each time it starts therefore takes no partitions from the
// other members.
func (g *Group) Run(ctx context.Context, done ...chan<- error) error {
	if g.err != nil {
		return g.err
	}
	if g.byName == nil {
		return errors.New("spindle: the Group was not created by New")
	}
	log := g.config.Log.With("table", g.spanner.Table, "group", g.name, "id", g.config.ID)
	return g.runs.Start(ctx, done, g.config.Run(log, g.wrap), func(ctx context.Context, late <-chan struct{}, events *loop.Mailbox) (func(), error) {
		m := newMember(g, log, events)
		m.caller.gracePeriod = late
		return m.run(ctx)
	})
}

// RunAndWait is like Run, but it blocks until the member has stopped, so it can be used with errgroup.Group.Go. It
// returns Run's error. If that is nil, it returns the value that Run would have sent to done.
func (g *Group) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, g.Run)
}

// Err returns an error that describes what is wrong with the arguments of New, or nil. It makes no RPC.
func (g *Group) Err() error { return g.err }

// wrap adds the step and the group's name to an error, and a hint if there is one.
func (g *Group) wrap(step string, err error) error {
	return loop.Wrap(step, "group", g.name, g.spanner.Table, err)
}
