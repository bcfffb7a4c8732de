package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// manyMembers is up to how many members each reads the rows of all at each look. With more, it does so less often: what
// a group reads in a second grows with the number of its members, not with the square of that.
const manyMembers = 100

// patienceOfElders is for how many leases members of an older list leave free partitions to the newer one.
const patienceOfElders = 3

// look reads the group at one instant, and does what follows from that. Looks that come soon after another leave out what
// the member has: those are for what it waits for.
func (t *term) look(ctx context.Context) {
	sent := t.config.Clock.Now()
	whole := t.skip > 0 || sent.Since(*t.looked.Load()) >= t.config.Lease/5
	scope := t.scope(whole)
	var r table.Roster
	err := t.try(ctx, func(ctx context.Context) (err error) {
		r, err = t.table.Roster(ctx, t.name, scope)
		return err
	})
	t.took = t.config.Clock.Now().Since(sent)
	if err != nil {
		t.problems.Note(fmt.Errorf("look: %w", err))
		t.pulse.Ail(err)
		t.next.set(t.config.Clock, t.beforeRetry())
		return
	}
	if whole && !t.extend(sent) {
		t.next.off()
		t.lease.Tell(spindle.ErrExpired) // the timer has not told it, if only the wall clock shows that
		return
	}
	t.pulse.Beat(sent)
	t.retry.Reset()
	t.check(r)
	if r.Members != nil {
		t.learn(r)
	}
	t.next.set(t.config.Clock, t.poll(r))
	if r.Members == nil {
		t.skip--
		return
	}
	t.bury(ctx, r)
	if !t.leaving() {
		t.spread(r)
	}
	wanted := t.wanted()
	window := t.window(wanted)
	if t.surveyMore(r, window) {
		t.soon(0) // before anything is taken or given: nothing is concluded from two reads
		return
	}
	if t.failing == (elect.Instant{}) && len(r.Unreadable) == 0 {
		t.problems.Clear()
	}
	taken := t.move(ctx, r, window)
	if len(wanted) > len(window) {
		t.goOnLooking(taken > 0)
	}
	if t.skip = 0; len(t.wanted()) == 0 {
		t.skip = (t.crowd - 1) / manyMembers
	}
}

// poll is the pause before the next look: a third of the shortest lease, or until one of the others may be over, or until
// this member counts: the others give it its share at their next look, and nobody has that until it looks too.
func (t *term) poll(r table.Roster) time.Duration {
	shortest := t.config.Lease
	for _, o := range r.Members {
		if lives(o) {
			shortest = min(shortest, o.Promise.Lease)
		}
	}
	// Whole looks are counted from when they were sent: one that takes long must be followed by the next in time.
	whole := max(t.config.Lease/3-t.config.Clock.Now().Since(*t.looked.Load()), t.config.Lease/10)
	pause := min(elect.Jitter(t.config.Clock, shortest/3), whole)
	if own := r.Members[t.hold.Name]; !slices.Contains(t.slots, t.slot) && present(own) {
		left := own.Promise.Lease - r.At.Sub(since(own).Time())
		pause = min(pause, max(left, elect.Jitter(t.config.Clock, t.config.Lease/50)))
	}
	if t.crowd > manyMembers {
		return pause // what is known of the others is older than this
	}
	for name, o := range r.Members {
		if left := t.leaseOf(o) - r.At.Sub(o.Heartbeat); o.Confirmed() && name != t.hold.Name && left > 0 {
			pause = min(pause, left+t.config.Clock.Random(t.config.Lease/50+1))
		}
	}
	return pause
}

// leaseOf is what a member has promised, be its lease row gone by now.
func (t *term) leaseOf(o table.Observation) time.Duration {
	return cmp.Or(t.promised[table.Hold{Name: o.Name, Token: o.Token}], t.config.Lease)
}

// bury ends the terms of members whose leases have run out: some at a time, if many died at once, or the next look would
// come too late for the own term. Each member begins elsewhere among them.
func (t *term) bury(ctx context.Context, r table.Roster) {
	var dead []table.Observation
	for _, name := range slices.Sorted(maps.Keys(r.Members)) {
		o := r.Members[name]
		foreign := o.Promise != nil && o.Promise.Plan == "" // a lock that is no member
		if name == t.hold.Name || !o.Confirmed() || foreign || r.Unreadable[name] != nil || r.At.Sub(o.Heartbeat) < t.leaseOf(o) {
			continue
		}
		dead = append(dead, o)
	}
	first := int(t.config.Clock.Random(time.Duration(len(dead) + 1)))
	for _, o := range slices.Concat(dead[first:], dead[:first]) {
		t.buryOne(ctx, o)
		if t.lookIsDue() {
			t.soon(0)
			return
		}
	}
}

func (t *term) buryOne(ctx context.Context, o table.Observation) {
	err := t.try(ctx, func(ctx context.Context) error { return t.table.Bury(ctx, o) })
	switch {
	case err == nil:
		t.log.Info("a member is gone", "slot", o.Name, "member", o.Holder(), "token", o.Token)
		t.soon(0)
	case elect.First(err):
		t.soon(t.config.Clock.Random(t.config.Lease/50 + 1))
	default:
		t.problems.Note(fmt.Errorf("bury: %w", err))
	}
}

// surveyMore reports whether a look has to read more of what is wanted: rows that the snapshot does not show, or lease
// rows too. It goes on to read those whose lock rows don't tell.
func (t *term) surveyMore(r table.Roster, window []*share) (more bool) {
	for _, s := range window {
		o, read := r.Partitions[s.lock]
		if !read {
			more = true
			continue
		}
		_, t.surveys[s] = t.judge(r).freeIn(table.Sighting{Observation: lockRow(o)}, *t.traces[s])
		more = more || t.surveys[s] && !o.Surveyed
	}
	return more
}

// lockRow is what the lock row alone says.
func lockRow(o table.Sighting) table.Observation {
	o.Promise, o.Strays = nil, nil
	return o.Observation
}

func (t *term) judge(r table.Roster) judge {
	return judge{roster: r, own: t.hold, lease: t.config.Lease, missing: t.missing}
}

// move takes what can be taken, and settles what the table shows with this member and nobody here acts on: after an
// outcome that is not known, such a partition would stay so for ever. It is never adopted as it is, since what was
// sent before may still be under way; taken anew, it has another token. It returns how many it has taken.
func (t *term) move(ctx context.Context, r table.Roster, window []*share) int {
	var free, unsettled []table.Observation
	takes := map[*share]bool{}
	for _, s := range window {
		o := r.Partitions[s.lock]
		wait, _ := t.judge(r).freeIn(o, *t.traces[s])
		if wait = t.yield(s, wait, r.At); wait == 0 {
			free, takes[s] = append(free, o.Observation), true
		} else {
			t.soon(t.patient(wait))
		}
	}
	t.open = len(free) == len(window)
	for s := range t.loose {
		o, read := r.Partitions[s.lock]
		switch {
		case !read || !o.Surveyed || r.Unreadable[s.lock] != nil:
		case !t.names(o):
			delete(t.loose, s)
		case !takes[s]:
			unsettled = append(unsettled, o.Observation)
		}
	}
	byName := func(a, b table.Observation) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(free, byName)
	slices.SortFunc(unsettled, byName)
	if len(free)+len(unsettled) == 0 {
		t.succeeded() // what could not be done has come to nothing
	}
	t.settle(ctx, unsettled)
	return t.take(ctx, free)
}

// names reports whether rows say that this member has the partition.
func (t *term) names(o table.Sighting) bool {
	return slices.Contains(named(o), t.hold) && !(o.Exists && o.Heartbeat.IsZero())
}

// yield makes members of an older list leave to the newer one what is free, but not for ever.
func (t *term) yield(s *share, wait time.Duration, at time.Time) time.Duration {
	m := t.traces[s]
	switch {
	case wait > 0:
		m.free = time.Time{}
		return wait
	case m.free.IsZero():
		m.free = at
	}
	if !t.elder {
		return 0
	}
	return max(m.free.Add(patienceOfElders*t.config.Lease).Sub(at), 0)
}

// scope is what the next look has to read.
func (t *term) scope(whole bool) table.Scope {
	s := table.Scope{Members: t.skip == 0}
	for _, h := range t.have {
		if whole && !h.told {
			s.Holds = append(s.Holds, table.Hold{Name: h.lock, Token: h.token})
		}
	}
	if !s.Members {
		return s
	}
	for share := range t.loose {
		s.Survey = append(s.Survey, share.lock)
	}
	for _, share := range t.window(t.wanted()) {
		switch {
		case t.loose[share]:
		case t.surveys[share], t.traces[share] == nil:
			s.Survey = append(s.Survey, share.lock)
		default:
			s.Rows = append(s.Rows, share.lock)
		}
	}
	return s
}

// check finds the partitions whose lease rows are gone: somebody has deleted them by hand.
func (t *term) check(r table.Roster) {
	for hold, good := range r.Good {
		if h := t.have[t.byLock[hold.Name]]; !good && h != nil && h.token == hold.Token && !h.told {
			t.log.Warn("a partition's lease row is gone: it is given up", "partition", h.name, "token", h.token)
			h.lost = true
			t.tell(h, spindle.ErrSuperseded)
		}
	}
}

// learn keeps what was seen of partitions and of members whose rows are missing.
func (t *term) learn(r table.Roster) {
	t.crowd = 0
	promised := map[table.Hold]time.Duration{}
	for name, o := range r.Members {
		h := table.Hold{Name: name, Token: o.Token}
		if o.Promise != nil && r.Unreadable[name] == nil {
			promised[h] = o.Promise.Lease
		} else if known, ok := t.promised[h]; ok {
			promised[h] = known // its lease row is gone, or can't be read
		}
		if lives(o) {
			t.crowd++
		}
	}
	t.promised = promised
	t.metrics.members.Store(int64(t.crowd))
	for h := range t.missing {
		if r.Members[h.Name].Exists {
			delete(t.missing, h)
		}
	}
	for lock, o := range r.Partitions {
		s := t.byLock[lock]
		if t.traces[s] == nil {
			t.traces[s] = &trace{}
		}
		feared := t.config.Lease
		for _, with := range named(o) {
			feared = max(feared, promised[with])
			part, _ := table.PartOf(with.Name)
			if _, known := t.missing[with]; !known && !r.Members[with.Name].Exists && part.Group == t.name {
				t.missing[with] = r.At
			}
		}
		if o.Promise != nil {
			feared = max(feared, o.Promise.Lease)
		}
		t.traces[s].learn(o, feared)
	}
	t.warn(r)
	newer := 0
	for name, err := range r.Unreadable {
		if errors.Is(err, table.ErrNewer) {
			newer++
			continue
		}
		t.problems.Note(fmt.Errorf("%q: %w", name, err))
	}
	if newer > 0 {
		t.problems.Note(fmt.Errorf("%d of the group's rows were %w, and are left to it: update this program", newer, table.ErrNewer))
	}
}

// warn says that plain locks have partitions' names, once for each term of theirs.
func (t *term) warn(r table.Roster) {
	var plain []table.Sighting
	for lock, o := range r.Partitions {
		m := t.traces[t.byLock[lock]]
		if o.Confirmed() && o.Promise != nil && o.Promise.With == "" && o.At.Sub(o.Heartbeat) < o.Promise.Lease && m.plain != o.Token {
			m.plain, plain = o.Token, append(plain, o)
		}
	}
	if len(plain) == 0 {
		return
	}
	first := slices.MinFunc(plain, func(a, b table.Sighting) int { return cmp.Compare(a.Name, b.Name) })
	t.log.Warn("a plain lock has the name of a partition: no member works on that until the lock is released", "partition", t.byLock[first.Name].name,
		"lock", first.Name, "holder", first.Holder(), "token", first.Token, "partitions", len(plain))
}

// named are the members that the rows of a partition name.
func named(o table.Sighting) (holds []table.Hold) {
	keys := []string{o.Writer}
	if o.Promise != nil {
		keys = append(keys, o.Promise.With)
	}
	for _, p := range o.Strays {
		keys = append(keys, p.With)
	}
	for _, key := range keys {
		if h, ok := table.MemberOf(key); ok {
			holds = append(holds, h)
		}
	}
	return holds
}

// spread finds which partitions are to be this member's, and tells the work of those that are not any more.
func (t *term) spread(r table.Roster) {
	slots, elder := planned(r, t.digest)
	t.elder = elder
	if !slices.Equal(slots, t.slots) {
		t.slots, t.mine = slots, map[*share]bool{}
		if slices.Contains(slots, t.slot) {
			for _, i := range t.plan.Shares(slots)[t.slot] {
				t.mine[t.shares[i]] = true
			}
		}
		t.changed = t.config.Clock.Now()
		t.log.Debug("spread anew", "members", len(slots), "partitions", len(t.mine))
	}
	if !t.telling.on {
		t.tellMore()
	}
}
