package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

const groupName = "orders"

// groups is a world whose processes are members of a group.
type groups struct {
	*world
	lists  [2][]string // of partitions: that of the beginning, and that of a rolling update
	newest int         // which of them new processes have
	doomed string      // which rows the operator deletes
	batch  int         // how many partitions are moved in one commit

	largest  map[string]spindle.Token          // by partition, of all work
	latest   map[string]*process               // whose that is
	claimed  map[string]table.Token            // by lock, the newest claim
	with     map[table.LeaseRef]table.LeaseRef // the member's term of each that was confirmed
	vanished map[table.LeaseRef]time.Time      // when somebody deleted the row of a member in its term
}

func newGroups(w *world) fleet {
	return &groups{world: w, largest: map[string]spindle.Token{}, latest: map[string]*process{}, claimed: map[string]table.Token{}, with: map[table.LeaseRef]table.LeaseRef{}, vanished: map[table.LeaseRef]time.Time{}}
}

// member is a process's counterpart of a lock.
type member struct {
	*group.Group
	names  []string
	list   int
	weight int
	ails   string                  // the step that it can't do, if it is sick
	terms  map[table.LeaseRef]bool // that it has confirmed
	works  map[string]*work        // that have not returned, by partition
}

type work struct {
	ctx     context.Context
	token   spindle.Token
	began   time.Time
	told    time.Time
	watched bool
}

// Driver actions that exist only for groups.
var groupFaults = []string{"leave", "roll", "weight"}

var memberSteps = []string{"look", "observe", "claim's read", "claim", "confirm", "heartbeat", "announce", "release", "evict's read", "evict", "claim-partitions's read", "claim-partitions", "confirm-partitions's read", "confirm-partitions", "release-partitions", "reconcile's read", "reconcile", "publish's read", "publish", "weigh", "fenced write"}

func (g *groups) draw(d *dice) plan {
	p := g.world.draw(d)
	of := p.leases
	p.leases, p.handover, p.keepOnReturn, p.rank = nil, nil, make([]bool, 6), make([]int, 6)
	handover := d.chance(0.5)
	for i := range pick(d, 1, 2, 2, 3, 3, 4, 5, 6) {
		p.leases = append(p.leases, of[i%len(of)])
		p.handover = append(p.handover, handover && d.chance(0.8))
	}
	p.longest = slices.Max(p.leases)
	if slices.Min(p.leases) < 50*p.latency { // heartbeats would be late with nothing wrong
		p.latency /= 10
	}
	p.lockDelay, p.poll, p.handovers, p.hunts, p.steps = 0, 0, false, false, memberSteps
	for _, kind := range append(handoverFaults, "row pruned") {
		delete(p.driver, kind)
	}
	for _, kind := range groupFaults {
		if d.chance(0.5) {
			p.driver[kind] = 1 + d.below(2)
		}
	}
	if d.chance(0.3) { // few terms end in spite of it, so what is left undone stays so
		p.pause, p.sick, p.slow, p.silent, p.lost, p.refused, p.abort = 0, false, 0, 0.05, 0.05, 0.05, 0.05
		p.driver = map[string]int{"leave": 2, "graceful stop": 1, "rows deleted": d.below(2)}
	}
	kinds := []string{"partition", "partition's lease", "member"}
	if p.longest == slices.Min(p.leases) {
		kinds = append(kinds, "member's lease", "any")
	}
	g.doomed, g.batch = pick(d, kinds...), pick(d, 1, 2, 3, 5, 50)
	for i := range pick(d, 1, 3, 7, 12, 12, 24, 40) {
		name := fmt.Sprintf("p_%d", i)
		if g.lists[0] = append(g.lists[0], name); d.chance(0.8) {
			g.lists[1] = append(g.lists[1], name)
		}
	}
	for i := range 1 + d.below(5) {
		g.lists[1] = append(g.lists[1], fmt.Sprintf("q/%d", i))
	}
	if d.chance(0.2) {
		g.poison = table.PartitionName(groupName, pick(d, g.lists[0]...))
	}
	return p
}

func (g *groups) launch(p *process, id string, d *dice) func(context.Context, ...chan<- error) error {
	p.member = &member{list: g.newest, weight: 1, names: g.lists[g.newest], ails: pick(d, "claim-partitions", "confirm-partitions", "release-partitions", "look"), terms: map[table.LeaseRef]bool{}, works: map[string]*work{}}
	opts := append(g.plan.member(p.slot, id), group.WithWork(func(ctx context.Context, of group.Partition) error { g.work(p, ctx, of); return nil }), g.plan.stall(20*g.plan.leases[p.slot]), options.Option(p.seam),
		options.Option(func(o *options.Config) { o.Batch = g.batch }), group.WithIdentity(pick(d, 0, 3*g.plan.longest, 10*g.plan.longest)))
	if d.chance(0.5) {
		opts = append(opts, group.WithInitialDelay(pick(d, 0, g.plan.longest/10, g.plan.longest)))
	}
	p.member.Group = group.New(nil, "locktable", groupName, group.Named(p.member.names...), opts...)
	for _, name := range p.member.names { // of fenced writes
		row := registerOf(table.PartitionName(groupName, name))
		if _, exists := g.store.Rows()[row]; !exists {
			g.operate(table.Write{Kind: table.Insert, Name: row})
		}
	}
	return p.member.Run
}

func (g *groups) work(p *process, ctx context.Context, of group.Partition) {
	g.running.Add(1)
	defer g.running.Done()
	g.beginWork(p, ctx, of)
	defer g.endWork(p, of)
	d := seeded(g.seed, p.id, uint64(of.Token()), hashOf(of.Name()))
	p.toil(ctx, &d, 20*p.lease(), func() { _ = of.Progress() }, func() { p.fencedWrite(table.PartitionName(groupName, of.Name()), of.Token(), of.Fence()) })
}

func (g *groups) breakOne(kind string, d *dice) {
	switch kind {
	case "rows deleted":
		g.operator(d)
	case "roll":
		g.newest = 1
		if old := g.older(); len(old) > 0 {
			g.end(pick(d, old...), kind)
		}
	case "leave":
		if p := g.victim(d); p != nil && !p.paused {
			g.end(p, kind)
			after := d.spread(g.plan.longest, 6*g.plan.longest)
			g.startIn(p.slot, after)
			g.quiet(after)
		}
	case "weight":
		if p := g.victim(d); p != nil {
			p.member.weight = pick(d, 1, 2, 3, 7)
			g.fault("a member has another weight", g.plan.longest)
			g.tracef(p, "sets its weight to %d", p.member.weight)
			_ = p.member.SetWeight(p.member.weight)
		}
	default:
		g.world.breakOne(kind, d)
	}
	for slot, p := range g.slots {
		if p != nil && !p.stoppedAt.IsZero() {
			g.restart(slot, d)
		}
	}
}

// older returns the processes that have the older list.
func (g *groups) older() (old []*process) {
	for _, p := range g.slots {
		if p != nil && !p.dead && !p.ended && !p.paused && p.stoppedAt.IsZero() && p.member.list < g.newest {
			old = append(old, p)
		}
	}
	return old
}

// operator deletes a row by hand, within the limits of the group's guarantees. It never deletes both rows of one lock
// under a member that might act. If leases differ, it always deletes the same kind of row, because a member that finds
// no lease record uses its own lease.
func (g *groups) operator(d *dice) {
	rows := g.store.Rows()
	var doomed []string
	for key := range rows {
		lock, isLease := leaseOf(key)
		part, is := table.PartOf(lock)
		kind := "partition"
		if part.Partition == "" {
			kind = "member"
		}
		row, exists := rows[lock]
		_, leased := rows[table.LeaseKey(lock, table.TokenAt(row.Token))]
		lost := isLease && !leased // another's, of a lock that has no row
		if !isLease {
			lost = stateAs(row) == "held" && !leased
		} else {
			kind += "'s lease"
		}
		if is && part.Group == groupName && exists && !lost && (g.doomed == kind || g.doomed == "any") {
			doomed = append(doomed, key)
		}
	}
	if len(doomed) == 0 || g.still {
		return
	}
	slices.Sort(doomed)
	key := pick(d, doomed...)
	g.fault("operator deleted a "+g.doomed, g.plan.longest)
	g.tracef(nil, "operator deletes %s", key)
	g.operate(table.Write{Kind: table.Delete, Name: key})
	if part, _ := table.PartOf(key); part.Partition == "" && stateAs(rows[key]) == "held" {
		g.vanished[table.LeaseRef{Name: key, Token: table.TokenAt(rows[key].Token)}] = time.Now()
	}
	g.strike(d)
}

// settle ends the faults. From then on, every partition of the newest list must be worked on within a few leases, and
// must not move.
func (g *groups) settle() {
	g.mu.Lock()
	g.still = true
	g.tracef(nil, "no new faults")
	d := g.dice(nil, "settle")
	for old := g.older(); len(old) > 0; old = g.older() {
		g.end(old[0], "roll")
		g.restart(old[0].slot, &d)
	}
	g.mu.Unlock()
	g.awaitQuiet()
	for g.anyOld() {
		time.Sleep(g.plan.longest)
	}
	start := time.Now()
	within := func(bound time.Duration, what string, is func() bool) bool {
		for !is() {
			if time.Since(start) >= bound {
				g.complain(what, "%v after the faults ended: %s", time.Since(start), g.shares())
				return false
			}
			time.Sleep(g.plan.longest / 20)
		}
		return true
	}
	var spread map[string]spindle.Token
	even := func() bool { spread = g.spread(); return spread != nil }
	// A useless member cools down for 32 leases, and is then assigned one partition for another lease.
	if within(3*g.plan.longest+longestAttempt, "all worked on", g.covered) && within(40*g.plan.longest+longestAttempt, "shared", even) {
		g.restless(spread)
	}
}

// covered reports whether each partition is worked on by some process.
func (g *groups) covered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	has, rows := g.holders(), g.store.Rows()
	for _, name := range g.lists[g.newest] {
		if _, valid := rows[table.LeaseKey(table.PartitionName(groupName, name), table.Token(has[name].token))]; !valid {
			return false
		}
	}
	return true
}

// anyOld reports whether a process with the older list is still running.
func (g *groups) anyOld() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.dice(nil, "older")
	for slot, p := range g.slots {
		if p != nil && p.member.list < g.newest && !g.closed {
			if !p.dead && p.stoppedAt.IsZero() {
				g.end(p, "roll")
			}
			g.restart(slot, &d)
			return true
		}
	}
	return false
}

// restless fails if a partition moves without a fault.
func (g *groups) restless(spread map[string]spindle.Token) {
	for start := time.Now(); time.Since(start) < 10*g.plan.longest; {
		time.Sleep(g.plan.longest / 5)
		now := g.spread()
		for name, token := range spread {
			if now[name] != token {
				g.complain("no moves", "%s was under %v and is under %v, with nothing wrong: %s", name, token, now[name], g.shares())
				return
			}
		}
	}
}

// spread returns the token of each partition, or nil unless all partitions are worked on, and shares follow
// the weights.
func (g *groups) spread() map[string]spindle.Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	has := g.holders()
	tokens, count := map[string]spindle.Token{}, map[*process]int{}
	rows := g.store.Rows()
	for name, h := range has {
		if _, valid := rows[table.LeaseKey(table.PartitionName(groupName, name), table.Token(h.token))]; valid {
			tokens[name] = h.token
			count[h.p]++
		}
	}
	for _, name := range g.lists[g.newest] {
		if tokens[name] == 0 {
			return nil
		}
	}
	sum := 0
	for _, p := range g.slots {
		if p == nil || !g.settled(p) {
			return nil
		}
		sum += p.member.weight
	}
	for _, p := range g.slots {
		if of := len(tokens) * p.member.weight; count[p] < of/sum || count[p] > (of+sum-1)/sum {
			return nil
		}
	}
	return tokens
}

// shares formats the shares for people.
func (g *groups) shares() (s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.slots {
		if p != nil {
			s += fmt.Sprintf("%s %v; ", p.name, p.has())
		}
	}
	return s + fmt.Sprint("of ", g.lists[g.newest])
}
