package share

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// numbered returns an inventory of n partitions that are assigned to the member, and the facts about it.
func numbered(n, batch int) (*Inventory, Facts) {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%03d", i))
	}
	v := NewInventory("orders", names)
	for _, e := range v.All {
		e.Target = true
	}
	c := &still{}
	return v, Facts{Inventory: v, Planned: true, Acting: true, Batch: batch, Now: c.Now()}
}

func rowsOf(entries ...*Entry) (rows []table.Observation) {
	for _, e := range entries {
		rows = append(rows, table.Observation{Name: e.Lock})
	}
	return rows
}

// Each step of a partition's life has one result. A claim that was sent may have been applied, whatever the reply says, so
// from then on only rows can clear the partition. A partition is released once: after its own work has returned or was let
// go, and unless its rows are missing.
func TestTheStatesOfAPartition(t *testing.T) {
	now := (&still{}).Now()
	own, before := &Assignment{Token: 5}, &Assignment{Token: 4}
	sends := func(goesOn, want bool) func(*Inventory, *Entry) {
		return func(v *Inventory, e *Entry) {
			v.Claim(rowsOf(e), 1)
			assert.Equal(t, want, v.Sends(e.Lock, goesOn))
		}
	}
	releases := func(one, lost bool) func(*Inventory, *Entry) {
		return func(v *Inventory, e *Entry) {
			released, more, isLost := v.Release(1)
			assert.Equal(t, []any{one, false, lost}, []any{len(released) == 1, more, isLost})
		}
	}
	leftOut := func(v *Inventory, e *Entry) { v.LeftOut(e) }
	revoked := func(change func(e *Entry)) Entry {
		a := *own
		e := Entry{State: Revoking, Target: true, Assigned: &a}
		change(&e)
		return e
	}
	for what, c := range map[string]struct {
		is       Entry
		step     func(*Inventory, *Entry)
		state    State
		assigned bool
		doubted  bool
	}{
		"a claim is sent":                               {Entry{Target: true}, sends(true, true), Claimed, false, true},
		"a claim is not sent: the term is over":         {Entry{Target: true}, sends(false, false), Free, false, false},
		"a claim is not sent: not assigned any more":    {Entry{}, sends(true, false), Free, false, false},
		"a claim is not sent: paused":                   {Entry{Target: true, Paused: Paused}, sends(true, false), Free, false, false},
		"a claim is not sent: work runs":                {Entry{Target: true, Busy: before}, sends(true, false), Free, false, false},
		"a claim is not sent, and an earlier one was":   {Entry{doubted: true}, sends(true, false), Unresolved, false, true},
		"a reconciliation is sent by a leaving member":  {Entry{State: Unresolved, doubted: true}, func(v *Inventory, e *Entry) { v.Reconcile(rowsOf(e), 1); assert.True(t, v.Sends(e.Lock, false)) }, Reconciling, false, true},
		"another member was first":                      {Entry{State: Claimed}, leftOut, Free, false, false},
		"another member was first, or its own attempt":  {Entry{State: Claimed, doubted: true}, leftOut, Unresolved, false, true},
		"it is revoked":                                 {Entry{State: Held, Assigned: &Assignment{Token: 5}}, func(v *Inventory, e *Entry) { v.Revoke(e, now); assert.Equal(t, now, e.Assigned.Since) }, Revoking, true, false},
		"it is released":                                {revoked(func(*Entry) {}), releases(true, false), Releasing, true, false},
		"not while its work runs":                       {revoked(func(e *Entry) { e.Busy = e.Assigned }), releases(false, false), Revoking, true, false},
		"while its work runs, if it was let go":         {revoked(func(e *Entry) { e.Busy, e.Assigned.Let = e.Assigned, true }), releases(true, false), Releasing, true, false},
		"while the work of an earlier assignment runs":  {revoked(func(e *Entry) { e.Busy = before }), releases(true, false), Releasing, true, false},
		"not if its rows are missing":                   {revoked(func(e *Entry) { e.Assigned.Lost = true }), releases(false, true), Unresolved, false, true},
		"it is not revoked, so it is not released":      {Entry{State: Held, Assigned: own}, releases(false, false), Held, true, false},
		"the outcome of its release is not known":       {Entry{State: Releasing, Assigned: own}, func(v *Inventory, e *Entry) { v.Doubt(e) }, Unresolved, false, true},
		"it was released, and had been claimed in vain": {Entry{State: Releasing, Assigned: own, doubted: true}, func(v *Inventory, e *Entry) { v.Clear(e) }, Free, false, false},
	} {
		v, _ := numbered(2, 1)
		v.Look = 7
		e := v.All[0]
		c.is.Name, c.is.Lock = e.Name, e.Lock
		*e = c.is
		c.step(v, e)
		assert.Equal(t, []any{c.state.String(), c.assigned, c.doubted}, []any{e.State.String(), e.Assigned != nil, e.doubted}, what)
		if c.state != c.is.State {
			assert.Equal(t, 7, e.changed, "%s: polls that were sent before are out of date", what)
		}
	}
}

// A confirmed claim ends what was known about the partition before. The lease of its own member counts if its row vanishes.
func TestAConfirmedClaimIsANewBeginning(t *testing.T) {
	v, f := numbered(1, 1)
	e := v.All[0]
	e.Suspect.Fail(f.Now, lease, errors.New("no"))
	e.history = history{assumed: time.Hour, absent: time.Now(), plain: 3}
	v.Hold(e, 5, lease)
	assert.Equal(t, Entry{Name: e.Name, Lock: e.Lock, State: Held, Target: true, Assigned: &Assignment{Token: 5}, history: history{assumed: lease}}, *e)
}

// The table shows a pause only after a request. What the program or the plan decides meanwhile counts: the pause may have ended,
// or the partition may be another member's.
func TestAPauseThatEndsWhileItIsMarkedHasEnded(t *testing.T) {
	for what, then := range map[string]struct {
		meanwhile func(*Inventory)
		is        Pause
	}{
		"nothing":          {func(*Inventory) {}, Marked},
		"it is resumed":    {func(v *Inventory) { v.Pause(nil) }, Running},
		"it moves":         {func(v *Inventory) { v.Assign(nil) }, Paused},
		"the term is over": {func(v *Inventory) { v.TermEnded() }, Paused},
		"it is resumed, claimed and paused again": {func(v *Inventory) {
			v.Pause(nil)
			v.Look++
			v.Hold(v.All[0], 5, lease)
			v.Pause(map[string]bool{"000": true})
			v.become(Free, v.All[0]) // it was released
		}, Paused},
	} {
		v, _ := numbered(1, 1)
		v.Pause(map[string]bool{"000": true})
		marking, asked := v.Unmarked(), v.Look
		assert.Len(t, marking, 1)
		then.meanwhile(v)
		v.Mark(marking, asked)
		assert.Equal(t, then.is, v.All[0].Paused, what)
	}
}

// A partition that could not be claimed gets a commit of its own, so that it does not hold up the others.
func TestASuspectIsClaimedAlone(t *testing.T) {
	v, f := numbered(8, 3)
	v.All[3].Suspect.Fail(f.Now, lease, errors.New("its row is locked"))
	var sizes []int
	for _, commit := range v.Claim(rowsOf(v.All...), 3) {
		sizes = append(sizes, len(commit))
	}
	assert.Equal(t, []int{1, 3, 3, 1}, sizes)
}

// A term begins as the first one did, whatever the last one has left behind. What outlives a term is the program's: its
// work, its pauses, and how early the work returned; and what was seen of the holders.
func TestATermBeginsLikeTheFirst(t *testing.T) {
	v, f := numbered(9, 1)
	v.Look, v.turn, v.open = 9, 3, true
	early := Suspicion{Since: f.Now, pause: lease}
	for i, e := range v.All {
		e.State, e.Assigned, e.doubted, e.changed = State(i%7), &Assignment{Token: 5}, true, 9
		e.Busy, e.Paused, e.EarlyReturn = &Assignment{Token: 5}, Pause(i%3), early
		e.history = history{assumed: lease}
	}
	v.TermEnded()
	first, _ := numbered(9, 1)
	for i, e := range first.All {
		e.Target, e.Busy, e.Paused, e.EarlyReturn = false, &Assignment{Token: 5, Ended: 1}, min(Pause(i%3), Paused), early
		e.history = history{assumed: lease}
	}
	assert.Equal(t, first, v)
	assert.False(t, v.All.Works(false), "no work of this term runs")
	assert.Len(t, v.All.Busy(), 9)
}

// What a poll says about a partition counts only if the poll was sent after the partition changed, and read enough.
func TestWhatAPollSaysOfAPartition(t *testing.T) {
	own, other := table.LeaseRef{Name: table.SlotName("orders", 0), Token: 3}, table.LeaseRef{Name: table.SlotName("orders", 1), Token: 3}
	at, bad := time.Unix(1000, 0), errors.New("not JSON")
	of := func(with table.LeaseRef) *table.Observation {
		return &table.Observation{Exists: true, Heartbeat: at, Token: 2, Writer: with.Key(), LeaseRecord: &table.LeaseRecord{With: with.Key(), Lease: lease}}
	}
	lock := &table.Observation{Exists: true, Heartbeat: at, Token: 2, Writer: "somebody"}
	released := &table.Observation{Exists: true, Token: 2, OrphanLeases: map[table.Token]table.LeaseRecord{1: {With: own.Key()}}}
	for what, c := range map[string]struct {
		state   State
		changed int // before the poll, if less than 4
		row     *table.Observation
		bad     bool
		more    bool
		want    partitionView
	}{
		"it changed since":                             {Free, 4, of(other), false, false, partitionView{}},
		"it changed since, and not all were read":      {Free, 4, of(other), false, true, partitionView{}},
		"it is free, and another's":                    {Free, 3, of(other), false, false, partitionView{read: true, wait: never}},
		"another's, whose row is enough":               {Free, 3, of(other), true, false, partitionView{read: true, wait: never}},
		"it is free, and its lease rows can't be read": {Free, 3, lock, true, false, partitionView{read: true, wait: never, unreadable: bad}},
		"it is held":                                       {Held, 3, of(other), false, false, partitionView{}},
		"it is free, and it is not its turn":               {Free, 3, nil, false, true, partitionView{later: true}},
		"it is free, and was left out":                     {Free, 3, nil, false, false, partitionView{}},
		"it is unresolved, and has to be read in any case": {Unresolved, 3, nil, false, true, partitionView{}},
		"it is unresolved, and this member's":              {Unresolved, 3, of(own), false, true, partitionView{read: true, own: true}},
		"it is unresolved, and can't be read":              {Unresolved, 3, of(own), true, true, partitionView{read: true, own: true, unreadable: bad}},
		"it was released, and an old lease row is left":    {Unresolved, 3, released, false, true, partitionView{read: true}},
	} {
		v, f := numbered(1, 1)
		v.Look = 4
		e := v.All[0]
		e.State, e.changed = c.state, c.changed
		j := Judge{Own: own, Memory: plan.NewMemory("orders", lease), Snapshot: table.GroupSnapshot{At: at, Unreadable: map[string]error{}, Partitions: map[string]table.Observation{}, Members: map[string]table.Observation{}}}
		for _, m := range []table.LeaseRef{own, other} {
			j.Snapshot.Members[m.Name] = table.Observation{Name: m.Name, Exists: true, Token: m.Token, Heartbeat: at}
		}
		if c.row != nil {
			c.row.Name = e.Lock
			j.Snapshot.Partitions[e.Lock] = *c.row
		}
		if c.bad {
			j.Snapshot.Unreadable[e.Lock] = bad
		}
		x := f.view(j, e, c.more)
		x.row = table.Observation{}
		assert.Equal(t, c.want, x, what)
	}
}

// A partition stays suspect until it is claimed, is no longer wanted, or another holder has it. If only its rows could not be
// read, it is no longer suspect once they can. It is tried again after the longer of its pauses.
func TestHowLongAPartitionIsSuspect(t *testing.T) {
	holder := table.Observation{Heartbeat: time.Now()}
	legible, garbled := partitionView{read: true, own: true}, partitionView{read: true, unreadable: errors.New("not JSON"), wait: never}
	for what, c := range map[string]struct {
		change func(*Entry)
		view   partitionView
		failed bool // alone, and not only because its rows could not be read
		stays  bool
		taken  bool
	}{
		"it failed":                          {nil, partitionView{read: true, wait: time.Second}, true, true, false},
		"not wanted":                         {func(e *Entry) { e.Target = false }, partitionView{}, true, false, false},
		"paused":                             {func(e *Entry) { e.Paused = Paused }, partitionView{}, true, false, false},
		"not wanted, and has to be freed":    {func(e *Entry) { e.State, e.Target = Unresolved, false }, legible, true, true, false},
		"another has it":                     {nil, partitionView{read: true, wait: never, row: holder}, true, false, true},
		"a lock has it":                      {nil, partitionView{read: true, wait: time.Second, row: table.Observation{Token: 1, Heartbeat: time.Now()}}, true, false, true},
		"another has it, and it is unwanted": {func(e *Entry) { e.Target = false }, partitionView{read: true, wait: never, row: holder}, true, false, false},
		"another had it, and no longer":      {nil, partitionView{read: true, row: holder}, true, true, false},
		"another has only claimed it":        {nil, partitionView{read: true, wait: time.Second, row: table.Observation{Token: table.TokenAt(holder.Heartbeat), Heartbeat: holder.Heartbeat}}, true, true, false},
		"this member has it, after all":      {nil, partitionView{read: true, own: true, wait: never, row: holder}, true, true, false},
		"another has what is to be freed":    {func(e *Entry) { e.State = Unresolved }, partitionView{read: true, wait: never, row: holder}, true, true, false},
		"it can't be read":                   {nil, garbled, true, true, false},
		"it could not be read, and can":      {nil, partitionView{read: true, wait: time.Second}, false, false, false},
		"it could not be read, and can't":    {nil, garbled, false, true, false},
		"it could not be read, and was not":  {nil, partitionView{}, false, true, false},
	} {
		v, f := numbered(1, 1)
		e := v.All[0]
		if e.Suspect.illegible(f.Now, errors.New("not JSON")); c.failed {
			e.Suspect = Suspicion{}
			e.Suspect.Fail(f.Now, lease, errors.New("no"))
		}
		if c.change != nil {
			c.change(e)
		}
		d := f.decide(func(*Entry) partitionView { return c.view })
		assert.Equal(t, c.stays, e.Suspect.failed(), what)
		assert.Equal(t, c.taken, len(d.Taken) == 1, what)
	}
	v, f := numbered(1, 1)
	v.All[0].Suspect.Fail(f.Now, lease, nil)
	v.All[0].EarlyReturn.Fail(f.Now, 2*lease, nil)
	d := f.decide(func(*Entry) partitionView { return partitionView{read: true} })
	assert.Empty(t, d.Claim)
	assert.Equal(t, lease/5, d.Next)
}
