package simulation

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/table"
)

// The invariants of groups, by the names that the mutants use. Some names are the same as for locks.
//
//	one worker        Has is never true for the same partition in two running processes at the same time
//	ctx ends          a work's ctx ends when Has becomes false
//	no revival        work whose ctx has ended for a reason other than a stop does not return
//	fence             no fenced write under a token commits after a newer claim of the partition, and no fenced write
//	                  under a valid token is refused
//	tokens grow       for each partition, in claims and in assignments
//	rows              each commit changes only rows that its step and its process are allowed to change
//	member there      a partition is confirmed only in the term of a member whose term continues
//	evicted in time   no member evicts another before the other's lease has expired by Spanner's time
//	claimed in time   no partition is claimed by another member while its member's term continues
//	work first        a partition is released, and a member leaves, only after the work has returned
//	one work          runs at a time for each partition in each process
//	all worked on     every partition, three leases after the last fault
//	shared            in equal shares, some leases later
//	no moves          from then on
//	stop ends         every process that is told to stop ends
//	nothing left over except released members and free partitions

// holder is the process that has a partition.
type holder struct {
	p     *process
	token spindle.Token
}

// check checks all processes. g.mu is held.
func (g *groups) check() { g.holders() }

func (g *groups) holders() map[string]holder {
	has := map[string]holder{}
	for _, p := range g.slots {
		if p == nil || p.dead || p.paused || p.ended {
			continue
		}
		p.held = 0
		for name, token := range p.has() {
			p.held = token
			if other, taken := has[name]; taken {
				g.violate("one worker", "%s has %s under %v and %s under %v", other.p.name, name, other.token, p.name, token)
			}
			has[name] = holder{p, token}
		}
		for name, k := range p.member.works {
			g.checkWork(p, name, k)
		}
	}
	return has
}

// hasOne calls Has in a process. w.mu is held, so this is not an await.
func (p *process) hasOne(name string) (bool, spindle.Token) {
	p.asking.Add(1)
	defer p.asking.Add(-1)
	return p.member.Has(name)
}

func (p *process) acts(name string, under spindle.Token) bool {
	has, token := p.hasOne(name)
	return has && token == under
}

func (p *process) has() map[string]spindle.Token {
	has := map[string]spindle.Token{}
	for _, name := range p.member.names {
		if ok, token := p.hasOne(name); ok {
			has[name] = token
		}
	}
	return has
}

// checkWork compares the ctx of work with Has, now and when they must agree.
func (g *groups) checkWork(p *process, name string, k *work) {
	acts := func() bool { return p.acts(name, k.token) }
	differs := func() bool { return acts() != (k.ctx.Err() == nil) }
	if k.watched || !differs() {
		return
	}
	k.watched = true
	since := time.Now()
	time.AfterFunc(g.slack(p, k.began.Add(-2*p.lease())), func() { // timers may be that much older than the work

		g.mu.Lock()
		defer g.mu.Unlock()
		k.watched = false
		switch {
		case p.dead, p.paused, p.ended, p.resumed.After(since), p.jumped.After(since), p.member.works[name] != k, !differs():
		case acts():
			g.violate("no revival", "%s has %s under %v whose ctx has ended: %v", p.name, name, k.token, context.Cause(k.ctx))
		default:
			g.violate("ctx ends", "the work of %s on %s under %v was not told that it is over", p.name, name, k.token)
		}
	})
}

func (g *groups) beginWork(p *process, ctx context.Context, of group.Partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name, token := of.Name(), of.Token()
	g.moves++
	p.working++
	g.tracef(p, "works on %s under %v", name, token)
	if before := p.member.works[name]; before != nil {
		g.violate("one work", "%s works on %s under %v while its work under %v goes on", p.name, name, token, before.token)
	}
	switch {
	case token > g.largest[name]:
		g.largest[name], g.latest[name] = token, p
	case token == g.largest[name] && g.latest[name] == p: // it returned early, and begins again
	case !p.dead && p.acts(name, token): // else it was stopped just before this
		g.violate("tokens grow", "%s works on %s under %v, after work under %v", p.name, name, token, g.largest[name])
	}
	k := &work{ctx: ctx, token: token, began: time.Now()}
	p.member.works[name] = k
	context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		k.told = time.Now()
	})
}

func (g *groups) endWork(p *process, of group.Partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.working--
	if k := p.member.works[of.Name()]; k != nil && k.token == of.Token() {
		delete(p.member.works, of.Name())
		if k.ctx.Err() != nil && g.largest[of.Name()] == k.token {
			g.latest[of.Name()] = nil // a token whose work was told to end is never acted on again
		}
		if !p.dead {
			g.tracef(p, "work on %s under %v has returned: %v", of.Name(), of.Token(), context.Cause(k.ctx))
		}
	}
}

// leaseOf distinguishes the key of a lease row, and returns its lock, from the key of a lock row.
func leaseOf(key string) (lock string, is bool) {
	if i := len(key) - 17; i > 0 && key[i] == '_' && strings.Trim(key[i+1:], "0123456789") == "" {
		return key[:i], true
	}
	return key, false
}

// stateAs is the kind of a lock row: claimed (bare), held or released.
func stateAs(row table.Row) string {
	return rowState{exists: true, heartbeat: row.Heartbeat, token: table.TokenAt(row.Token)}.kind()
}

// lockState is a lock of a group in the table.
type lockState struct {
	rowState
	with table.LeaseRef // a partition's member, as its lease record says, or a claim
}

func lockOf(rows map[string]table.Row, lock string) lockState {
	s := lockState{rowState: rowState{leases: map[table.Token]table.Row{}}}
	if row, exists := rows[lock]; exists {
		s.exists, s.heartbeat, s.token, s.writer = true, row.Heartbeat, table.TokenAt(row.Token), row.Writer
		s.with, _ = table.MemberOf(row.Writer)
	}
	for key, row := range rows {
		if of, is := leaseOf(key); is && of == lock {
			token, _ := strconv.ParseInt(key[len(lock)+1:], 10, 64)
			s.leases[table.Token(token)] = row
		}
	}
	return s
}

// goesOn reports whether a member's term continues, judging by its row.
func goesOn(rows map[string]table.Row, with table.LeaseRef) bool {
	row := rows[with.Name]
	return table.TokenAt(row.Token) == with.Token && !row.Heartbeat.IsZero()
}

// checkCommit is called within each commit.
func (g *groups) checkCommit(step string, at time.Time, before, after map[string]table.Row) {
	g.committed = at
	p := g.actor
	if p == nil {
		return // the operator is free
	}
	g.commits++
	changed := map[string]bool{}
	for key, row := range before {
		if now, exists := after[key]; !exists || now != row {
			lock, _ := leaseOf(key)
			changed[lock] = true
		}
	}
	for key := range after {
		if _, exists := before[key]; !exists {
			lock, _ := leaseOf(key)
			changed[lock] = true
		}
	}
	if step == "confirm-partitions" && !slices.ContainsFunc(slices.Collect(maps.Keys(p.member.terms)), func(h table.LeaseRef) bool {
		_, there := before[h.Key()]
		return there
	}) {
		g.violate("member there", "%s confirmed partitions, and its term was over", p.name)
	}
	for _, lock := range slices.Sorted(maps.Keys(changed)) {
		if of, is := strings.CutPrefix(lock, registerOf("")); is {
			g.checkFenced(of, after[lock].Writer)
			continue
		}
		b, a := lockOf(before, lock), lockOf(after, lock)
		if len(a.leases) > 1 && len(a.leases) > len(b.leases) {
			g.violate("rows", "%s of %s left more than one lease row of %s: %v", step, p.name, lock, a)
		}
		switch part, is := table.PartOf(lock); {
		case step == "publish" && strings.HasSuffix(lock, "!plan"):
			g.checkPublished(before, after)
		case !is:
			g.violate("rows", "%s of %s wrote %q", step, p.name, lock)
		case part.Partition == "":
			g.checkMember(step, at, lock, b, a)
		default:
			g.checkPartition(step, at, lock, b, a, before)
		}
	}
}

// checkPublished checks a change of the plan, whose two rows must be written together.
func (g *groups) checkPublished(before, after map[string]table.Row) {
	const head, body = groupName + "/!plan", groupName + "/body!plan"
	if h, b := after[head], after[body]; !h.Token.Equal(b.Token) || !h.Token.After(before[head].Token) || !h.Heartbeat.IsZero() {
		g.violate("rows", "publish of %s made of (%v) this: (%v) and (%v)", g.actor.name, before[head], h, b)
	}
}

// settled reports whether a process has been a member for long enough to have its share.
func (g *groups) settled(p *process) bool {
	rows := g.store.Rows()
	for h := range p.member.terms {
		if goesOn(rows, h) && time.Since(h.Token.Time()) > 2*g.plan.longest+longestAttempt {
			return true
		}
	}
	return false
}

func (g *groups) checkFenced(lock, under string) {
	if token, _ := strconv.ParseInt(under, 10, 64); table.Token(token) != g.claimed[lock] {
		g.violate("fence", "a fenced write under %s landed after the claim of %s under %d", under, lock, g.claimed[lock])
	}
}

// weight finds the weight in a lease record.
var weight = regexp.MustCompile(`,"weight":\d+`)

// checkMember checks a change of a member's lock.
func (g *groups) checkMember(step string, at time.Time, lock string, b, a lockState) {
	p := g.actor
	ref := table.LeaseRef{Name: lock, Token: b.token}
	switch step {
	case "claim":
		maps.DeleteFunc(g.vanished, func(h table.LeaseRef, _ time.Time) bool { return h.Name == lock })
		own := p.member.terms[ref] || p.config.Reclaim && g.record(b).ID == p.config.ID
		switch {
		case b.kind() != "held" || !b.leased(b.token):
		case !own:
			g.checkExpired("evicted in time", at, lock, b)
		}
		for name, k := range p.member.works {
			if lease := p.lease() * 98 / 100; p.member.terms[ref] && !p.dead && (k.told.IsZero() || time.Since(k.told) < lease) && p.jumped.Before(k.began) {
				g.violate("work first", "%s began a term while its work on %s went on, told to stop at %v", p.name, name, k.told)
			}
		}
	case "confirm":
		g.terms++
		p.member.terms[table.LeaseRef{Name: lock, Token: a.token}] = true
	case "evict":
		if a.kind() != "released" || b.kind() != "held" || !a.only(0) {
			g.violate("rows", "evict of %s made of (%v) this: (%v)", p.name, b, a)
		}
		g.checkExpired("evicted in time", at, lock, b)
	case "release":
		if !p.member.terms[ref] || a.kind() != "released" || !a.only(0) {
			g.violate("rows", "release of %s made of (%v) this: (%v)", p.name, b, a)
		}
		for name, k := range p.member.works {
			if !p.dead && g.with[table.LeaseRef{Name: table.PartitionName(groupName, name), Token: table.Token(k.token)}] == ref {
				g.violate("work first", "%s left while its work on %s under %v went on", p.name, name, k.token)
			}
		}
	case "heartbeat", "announce":
		if !p.member.terms[ref] || b.token != a.token || !b.leased(b.token) {
			g.violate("rows", "%s of %s made of (%v) this: (%v)", step, p.name, b, a)
		}
	case "weigh":
		was, is := weight.ReplaceAllString(b.leases[b.token].Writer, ""), weight.ReplaceAllString(a.leases[a.token].Writer, "")
		if !p.member.terms[ref] || a.token != b.token || !a.heartbeat.Equal(b.heartbeat) || a.writer != b.writer || was == "" || was != is {
			g.violate("rows", "weigh of %s made of (%v) this: (%v)", p.name, b, a)
		}
	case "withdraw":
	case "succeed": // a candidate for the slot of a member that leaves
		if b.token != a.token || !b.leased(b.token) || !a.leased(a.token) || b.writer != "" && b.writer[0] != '\n' {
			g.violate("rows", "%s of %s made of (%v) this: (%v)", step, p.name, b, a)
		}
	default:
		g.violate("rows", "%s of %s made of (%v) this: (%v)", step, p.name, b, a)
	}
}

// checkExpired checks a term that another member ends. If the lease row was deleted, the other member uses its own
// lease.
func (g *groups) checkExpired(invariant string, at time.Time, lock string, b lockState) {
	lease := g.actor.lease()
	if lasts, err := time.ParseDuration(g.record(b).Lease); err == nil {
		lease = lasts
	}
	if left := b.heartbeat.Add(lease).Sub(at); left > 0 {
		g.violate(invariant, "%s ended the term of %s %v before the end of its lease: %v", g.actor.name, lock, left, b)
	}
}

func (g *groups) record(s lockState) (p record) { return s.record(s.token) }

// partitionRecord is the content of a partition's lease row.
type partitionRecord struct {
	Format int    `json:"v"`
	For    string `json:"for"`
	With   string `json:"with"`
}

// checkPartition checks a change of a partition's lock.
func (g *groups) checkPartition(step string, at time.Time, lock string, b, a lockState, before map[string]table.Row) {
	p := g.actor
	part, _ := table.PartOf(lock)
	works := p.member.works[part.Partition]
	busy := !p.dead && works != nil && table.Token(works.token) == b.token
	bad := func() { g.violate("rows", "%s of %s made of %s (%v) this: (%v)", step, p.name, lock, b, a) }
	switch step {
	case "claim-partitions":
		if a.kind() != "claimed" || a.token != table.TokenAt(at) || !p.member.terms[a.with] {
			bad()
		}
		if a.token <= g.claimed[lock] {
			g.violate("tokens grow", "%s was claimed under %d after %d", lock, a.token, g.claimed[lock])
		}
		g.claimed[lock] = a.token
		g.checkTaken(at, lock, b, a, before)
		if busy {
			g.violate("work first", "%s claimed %s anew while its work on it went on", p.name, lock)
		}
	case "confirm-partitions":
		g.with[table.LeaseRef{Name: lock, Token: a.token}] = a.with
		record, _ := json.Marshal(partitionRecord{1, p.lease().String(), a.writer})
		if b.kind() != "claimed" || a.kind() != "held" || a.token != b.token || a.writer != b.writer || !p.member.terms[a.with] ||
			!b.only(0) || !a.only(a.token) || a.leases[a.token].Writer != string(record) {
			bad()
		}
		if _, there := before[a.with.Key()]; !there {
			g.violate("member there", "%s confirmed %s, and its term %v was over", p.name, lock, a.with)
		}
	case "release-partitions", "reconcile":
		if a.exists && b.exists && a.kind() != "released" && b.kind() != a.kind() || !p.member.terms[b.with] && b.exists && a.rowState.kind() != b.kind() || a.leased(b.token) && b.exists {
			bad()
		}
		if step == "release-partitions" && !a.only(0) {
			bad()
		}
		if busy {
			g.violate("work first", "%s of %s freed %s while its work went on", step, p.name, lock)
		}
	default:
		bad()
	}
}

// checkTaken checks the member that loses a partition to a claim.
func (g *groups) checkTaken(at time.Time, lock string, b, a lockState, before map[string]table.Row) {
	withs := []table.LeaseRef{b.with}
	if !b.exists {
		withs = nil
		for _, row := range b.leases {
			var record partitionRecord
			_ = json.Unmarshal([]byte(row.Writer), &record)
			with, _ := table.MemberOf(record.With)
			withs = append(withs, with)
		}
	}
	for _, with := range withs {
		since, vanished := g.vanished[with]
		_, there := before[with.Name]
		switch {
		case b.exists && b.kind() == "released", with == a.with:
		case b.exists && b.kind() == "claimed" && at.Sub(b.heartbeat) >= g.actor.lease():
		case vanished && !there && at.Sub(since) < g.shortest():
			g.violate("claimed in time", "%s took %s %v after somebody deleted the row of its member %v", g.actor.name, lock, at.Sub(since), with)
		case goesOn(before, with):
			g.violate("claimed in time", "%s took %s from %v, whose term goes on", g.actor.name, lock, with)
		}
	}
}

func (g *groups) shortest() time.Duration { return slices.Min(g.plan.leases) }

// checkRest checks the rows that remain when all processes have stopped.
func (g *groups) checkRest(rows map[string]table.Row) {
	for key, row := range rows {
		lock, isLease := leaseOf(key)
		part, is := table.PartOf(lock)
		with, _ := table.MemberOf(row.Writer)
		switch {
		case !is || part.Group != groupName:
		case part.Partition == "" && !isLease && stateAs(row) == "held":
			g.violate("nothing left over", "%s is left: %v", key, row)
		case !isLease && stateAs(row) != "released" && goesOn(rows, with):
			g.violate("nothing left over", "%s is left with a member: %v", key, row)
		}
	}
}
