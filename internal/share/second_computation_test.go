package share

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// These tests compare what is said about many partitions with a second, simpler computation.

// filter returns the entries for which is returns true.
func filter(all Entries, is func(*Entry) bool) Entries {
	return slices.DeleteFunc(slices.Clone(all), func(e *Entry) bool { return !is(e) })
}

// Of any partitions, the one that has had its problem for longest is reported, wherever it is in the list and whatever state the
// others are in. Otherwise, Health would be silent about it.
func TestTheWorstOfAnyPartitionsIsReported(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	at := func(ago time.Duration) elect.Instant {
		return elect.Instant{Wall: int64(time.Hour - ago), Mono: int64(time.Minute - ago)}
	}
	now := at(0)
	for range 3000 {
		v, _ := numbered(r.IntN(6), 1)
		since := map[*Entry]time.Duration{}
		for i, ago := range r.Perm(len(v.All)) {
			e := v.All[i]
			since[e] = time.Duration(ago) * lease / 3
			e.State, e.Target, e.Paused = State(r.IntN(7)), r.IntN(2) == 0, Pause(r.IntN(3))
			if r.IntN(2) == 0 {
				e.Suspect = Suspicion{Since: at(since[e]), Err: errors.New(e.Name)}
			}
			if r.IntN(3) > 0 {
				e.Assigned = &Assignment{Let: r.IntN(4) == 0}
			}
			if e.Busy = e.Assigned; r.IntN(2) == 0 {
				e.Busy = &Assignment{Ended: r.IntN(3), Let: r.IntN(4) == 0}
			}
			if e.Busy != nil && r.IntN(2) == 0 {
				e.Busy.Since = at(since[e])
			}
		}
		longest := func(all Entries) *Entry {
			if len(all) == 0 {
				return nil
			}
			return slices.MaxFunc(all, func(a, b *Entry) int { return cmp.Compare(since[a], since[b]) })
		}
		wanted := func(e *Entry) bool { return e.Target && e.Paused == Running }
		needsNothing := func(e *Entry) bool { return e.State == Free && !wanted(e) }
		suspects := filter(v.All, func(e *Entry) bool { return e.Suspect.Err != nil })
		busy := filter(v.All, func(e *Entry) bool { return e.Busy != nil })
		overdue := filter(busy, func(e *Entry) bool { return e.Busy.Since != (elect.Instant{}) && since[e] >= lease })
		works := filter(busy, func(e *Entry) bool { return e.Busy.Ended == 0 && !e.Busy.Let })

		name, s := v.All.Oldest()
		if worst := longest(suspects); worst == nil {
			require.Zero(t, s)
		} else {
			require.Equal(t, []any{worst.Name, worst.Suspect}, []any{name, s})
		}
		late := v.All.Overdue(now, lease)
		require.ElementsMatch(t, overdue, late)
		require.True(t, slices.IsSortedFunc(late, func(a, b *Entry) int { return cmp.Compare(since[b], since[a]) }))
		require.ElementsMatch(t, busy, v.All.Busy())
		require.Equal(t, len(works) > 0, v.All.Works(false))
		require.Equal(t, len(filter(works, func(e *Entry) bool { return e.State == Revoking })) > 0, v.All.Works(true))
		owned, acted := v.All.Holds()
		require.Len(t, filter(v.All, func(e *Entry) bool { return e.Assigned != nil }), owned)
		require.Len(t, filter(v.All, func(e *Entry) bool { return e.State == Held }), acted)
		require.Equal(t, len(filter(suspects, func(e *Entry) bool { return !needsNothing(e) })) > 0, v.All.Owe())
		settled := filter(v.All, func(e *Entry) bool { return needsNothing(e) || e.State == Held && wanted(e) })
		require.Equal(t, len(settled) == len(v.All), v.All.Settled())
	}
}

// A commit releases as many partitions as it may: the first of those that are revoked and that no work of theirs holds up. The
// others wait for the next commit. Those whose rows are missing are polled instead.
func TestOneCommitReleasesNoMoreThanItMay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 3000 {
		v, _ := numbered(r.IntN(9), 1)
		for _, e := range v.All {
			e.State, e.Assigned = Revoking, &Assignment{Lost: r.IntN(5) == 0, Let: r.IntN(4) == 0}
			if r.IntN(5) == 0 {
				e.State = State(r.IntN(7))
			}
			switch r.IntN(4) {
			case 0:
				e.Busy = e.Assigned
			case 1:
				e.Busy = &Assignment{}
			}
		}
		ready := filter(v.All, func(e *Entry) bool {
			return e.State == Revoking && (e.Busy != e.Assigned || e.Assigned.Let)
		})
		gone := filter(ready, func(e *Entry) bool { return e.Assigned.Lost })
		ready = filter(ready, func(e *Entry) bool { return !e.Assigned.Lost })
		before := map[*Entry]State{}
		for _, e := range v.All {
			before[e] = e.State
		}
		most := 1 + r.IntN(4)
		releasing, more, lost := v.Release(most)
		require.ElementsMatch(t, ready[:min(most, len(ready))], releasing)
		require.Equal(t, []bool{len(ready) > most, len(gone) > 0}, []bool{more, lost})
		for _, e := range v.All {
			switch {
			case slices.Contains(releasing, e):
				require.Equal(t, Releasing, e.State)
			case slices.Contains(gone, e):
				require.Equal(t, []any{Unresolved, true, (*Assignment)(nil)}, []any{e.State, e.doubted, e.Assigned})
			default:
				require.Equal(t, before[e], e.State)
			}
		}
	}
}

// Commits have all partitions that are to be claimed or freed, each of them once, and none has more than it may.
func TestCommitsHaveEachPartitionOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		v, f := numbered(r.IntN(12), 1)
		move := filter(v.All, func(*Entry) bool { return r.IntN(3) > 0 })
		for _, e := range move {
			if e.doubted = r.IntN(2) == 0; r.IntN(4) == 0 {
				e.Suspect.Fail(f.Now, lease, errors.New("no"))
			}
		}
		most, frees := 1+r.IntN(5), r.IntN(2) == 0
		commits, to := v.Claim(rowsOf(move...), most), Claimed
		if frees {
			commits, to = v.Reconcile(rowsOf(move...), most), Reconciling
		}
		var together []table.Observation
		suspects := 0
		for _, rows := range commits {
			require.NotEmpty(t, rows)
			require.LessOrEqual(t, len(rows), most)
			if v.Of(rows[0].Name).Suspect.failed() {
				suspects++
			}
			together = append(together, rows...)
		}
		require.ElementsMatch(t, rowsOf(move...), together)
		alone := len(filter(move, func(e *Entry) bool { return e.Suspect.failed() }))
		if !frees {
			require.Equal(t, alone, suspects)
			require.Len(t, commits, alone+(len(move)-alone+most-1)/most, "no more commits than it takes")
		}
		for _, e := range v.All {
			require.Equal(t, slices.Contains(move, e), e.State == to)
		}
	}
}

// event is one thing that a Conduct is told, for a second computation from all of them.
type event struct {
	at      elect.Instant
	entries []*Entry
	alone   bool
}

// In any history of failures, successes, and partitions that others take over, a member fails for as long as its first failure has
// lasted, or its second partition's, if it has partitions. On that depends when it leaves its share to others.
func TestForHowLongAMemberHasFailed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		c := &still{}
		p := Conduct{Lease: lease, Began: c.Now(), Acked: c.Now(), Trial: r.IntN(2) == 0}
		v, _ := numbered(4, 1)
		var failed []event // since the last success
		var last error
		forgotten := map[*Entry]int{} // for a partition, how many of the failures no longer count
		for range 12 {
			c.now += time.Duration(r.IntN(20)) * lease / 10
			switch r.IntN(6) {
			default:
				e := event{c.Now(), filter(v.All, func(*Entry) bool { return r.IntN(2) == 0 }), r.IntN(2) == 0}
				last = errors.New("no")
				p.Failed(e.at, last, e.alone, e.entries...)
				failed = append(failed, e)
			case 4:
				p.Succeeded()
				failed, last = nil, nil
				clear(forgotten)
			case 5:
				taken := filter(v.All, func(*Entry) bool { return r.IntN(3) == 0 })
				gone := v.All[r.IntN(4)]
				gone.Target = false
				p.Absolve(taken)
				for _, e := range append(taken, gone) {
					forgotten[e] = len(failed)
				}
				gone.Target = true
				if !slices.ContainsFunc(v.All, func(e *Entry) bool {
					return slices.ContainsFunc(failed[forgotten[e]:], func(f event) bool { return slices.Contains(f.entries, e) })
				}) {
					failed, last = nil, nil
					clear(forgotten)
				}
			}
			var alone []elect.Instant // when each partition that has failed by itself first failed
			for _, e := range v.All {
				var since elect.Instant
				ever := false
				for _, f := range failed[forgotten[e]:] {
					if slices.Contains(f.entries, e) {
						since, ever = cmp.Or(since, f.at), ever || f.alone
					}
				}
				if ever {
					alone = append(alone, since)
				}
			}
			slices.SortFunc(alone, func(a, b elect.Instant) int { return cmp.Compare(a.Mono, b.Mono) })
			var any, second elect.Instant
			if len(failed) > 0 {
				any = failed[0].at
			}
			if len(alone) > 1 {
				second = alone[1]
			}
			require.Equal(t, []elect.Instant{any, second}, []elect.Instant{p.FailingSince(0), p.FailingSince(1)})
			require.Equal(t, last, p.Err)
			require.Equal(t, second != (elect.Instant{}), p.Sick())
			limit := 2 * lease
			if p.Trial {
				limit = lease
			}
			for owned, since := range []elect.Instant{any, second} {
				fails := func(limit time.Duration) bool {
					return since != (elect.Instant{}) && c.Now().Since(since) >= limit
				}
				require.Equal(t, fails(limit), p.Useless(c.Now(), owned))
				require.Equal(t, fails(lease*3/2) || p.Trial && len(failed) > 0, p.Ending(c.Now(), lease, owned, false).Useless)
			}
		}
	}
}

// A trial is passed at the end of the first whole lease in which a member on trial has acted on a partition at each step, and once.
func TestWhenATrialIsPassed(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 1000 {
		c := &still{}
		p := Conduct{Lease: lease, Trial: r.IntN(4) > 0}
		trial, worked := p.Trial, time.Duration(-1)
		for range 30 {
			c.now += time.Duration(r.IntN(4)) * lease / 5
			acted := min(r.IntN(9), 2)
			passes := trial && acted > 0 && worked >= 0 && c.now-worked >= lease
			require.Equal(t, passes, p.Passes(c.Now(), acted))
			switch {
			case acted == 0:
				worked = -1
			case worked < 0:
				worked = c.now
			}
			trial = trial && !passes
			require.Equal(t, trial, p.Trial)
		}
	}
}

// A decision about all partitions is what decideEntry says of each, in the order of the list: no more are revoked than a batch, the
// next poll is as early as any partition needs it, and whatever is not claimed, freed or revoked is in its new state.
func TestADecisionIsMadeOfEachPartitionsOwn(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 2500 {
		v, f := numbered(r.IntN(7), 1+r.IntN(6))
		v.Look = 3
		f.Planned, f.Acting, f.Leaving, f.Moving = r.IntN(4) > 0, r.IntN(6) > 0, r.IntN(5) == 0, r.IntN(4) == 0
		views := map[*Entry]partitionView{}
		room := max(f.Batch/2, 1)
		want := Decisions{Next: NoLook}
		var states []State
		var suspects []bool
		for i, e := range v.All {
			e.State, e.Target, e.Paused, e.doubted = State(r.IntN(7)), r.IntN(3) > 0, Pause(r.IntN(3)), r.IntN(2) == 0
			e.Assigned = &Assignment{}
			if r.IntN(4) == 0 {
				e.Busy = &Assignment{}
			}
			var x partitionView
			switch x.read = r.IntN(5) > 0; {
			case !x.read:
				x.later = r.IntN(2) == 0
			case r.IntN(5) == 0:
				x.unreadable, x.wait = errors.New("not JSON"), never
			default:
				x.own, x.wait = r.IntN(3) == 0, []time.Duration{0, 0, 3, never}[r.IntN(4)]
			}
			if x.row = rowsOf(e)[0]; r.IntN(2) == 0 {
				x.row.Heartbeat = time.Unix(1000, 0)
			}
			views[e] = x
			alone := r.IntN(4) == 0
			if alone {
				e.Suspect.Fail(f.Now, lease, errors.New("no"))
			}
			is := *e
			if x.unreadable != nil {
				is.Suspect.illegible(f.Now, x.unreadable)
			}
			to, next := f.decideEntry(&is, x, room > 0 && !f.Moving)
			states = append(states, to)
			taken := is.Wanted() && is.State == Free && x.taken()
			if taken {
				want.Taken = append(want.Taken, e)
			}
			switch {
			case to == Revoking && is.State != Revoking:
				room--
				want.Revoke = append(want.Revoke, e)
				states[i] = is.State
			case to == Claimed && is.State != Claimed:
				want.Claim = append(want.Claim, x.row)
				states[i] = is.State
			case to == Reconciling && is.State != Reconciling:
				want.Reconcile = append(want.Reconcile, x.row)
				states[i] = is.State
			}
			needsNothing := states[i] == Free && !is.Wanted()
			suspects = append(suspects, is.Suspect.failed() && !taken && !needsNothing)
			switch {
			case next == awaited:
				want.Awaits = true
			case next == 0:
				want.Again = true
			case next < want.Next:
				want.Next = next
			}
		}
		before := map[*Entry]Entry{}
		for _, e := range v.All {
			before[e] = *e
		}
		require.Equal(t, want, f.decide(func(e *Entry) partitionView { return views[e] }))
		for i, e := range v.All {
			was := before[e]
			require.Equal(t, []any{states[i], suspects[i]}, []any{e.State, e.Suspect.failed()})
			if x := views[e]; x.unreadable != nil && suspects[i] && !was.Suspect.failed() {
				require.Equal(t, x.unreadable, e.Suspect.Err)
			}
			switch {
			case e.State == was.State:
				require.Equal(t, []any{was.Assigned, was.doubted, was.changed}, []any{e.Assigned, e.doubted, e.changed})
			default: // free or unresolved
				require.Equal(t, []any{(*Assignment)(nil), e.State == Unresolved, 3}, []any{e.Assigned, e.doubted, e.changed})
			}
		}
	}
}

// Of any requests and plans, a partition is paused as long as the program wants it, and the table shows it as long as nothing else may
// have replaced the mark. The program is told of each change once.
func TestAPauseIsWhatTheProgramWants(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	some := func(v *Inventory) (indexes []int, locks []string, names map[string]bool) {
		names = map[string]bool{}
		for i, e := range v.All {
			if r.IntN(2) == 0 {
				indexes, locks, names[e.Name] = append(indexes, i), append(locks, e.Lock), true
			}
		}
		return indexes, locks, names
	}
	for range 500 {
		v, _ := numbered(r.IntN(6), 1)
		for _, e := range v.All {
			e.State = State(r.IntN(7))
		}
		wants, marked, target := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, e := range v.All {
			target[e.Name] = true
		}
		for range 20 {
			indexes, locks, names := some(v)
			switch r.IntN(3) {
			case 0:
				var begin, end Entries
				for _, e := range v.All {
					switch {
					case names[e.Name] && !wants[e.Name]:
						begin = append(begin, e)
					case !names[e.Name] && wants[e.Name]:
						end = append(end, e)
						delete(marked, e.Name)
					}
				}
				paused, resumed := v.Pause(names)
				require.ElementsMatch(t, begin, paused)
				require.ElementsMatch(t, end, resumed)
				wants = names
			case 1:
				v.Assign(indexes)
				target = names
				for name := range marked {
					if !target[name] {
						delete(marked, name)
					}
				}
			case 2:
				v.Mark(locks, v.Look)
				for _, e := range v.All {
					if name := e.Name; names[name] && wants[name] && target[name] && e.State == Free {
						marked[name] = true
					}
				}
			}
			var unmarked []string
			for _, e := range v.All {
				is := Running
				switch {
				case marked[e.Name]:
					is = Marked
				case wants[e.Name]:
					is = Paused
				}
				require.Equal(t, []any{is, target[e.Name], target[e.Name] && !wants[e.Name]}, []any{e.Paused, e.Target, e.Wanted()})
				if is == Paused && target[e.Name] && e.State == Free {
					unmarked = append(unmarked, e.Lock)
				}
			}
			require.Equal(t, unmarked, v.Unmarked())
		}
	}
}

// What becomes of one partition becomes of all that are named, and of no other.
func TestAllPartitionsOfARequestHaveItsResult(t *testing.T) {
	for what, c := range map[string]struct {
		become  func(v *Inventory, some ...*Entry)
		to      State
		doubted bool
	}{
		"an unknown outcome": {(*Inventory).Doubt, Unresolved, true},
		"a known end":        {(*Inventory).Clear, Free, false},
	} {
		v, _ := numbered(4, 1)
		v.Look = 5
		for _, e := range v.All {
			e.State, e.Assigned, e.doubted = Releasing, &Assignment{}, !c.doubted
		}
		c.become(v, v.All[1], v.All[3])
		for i, e := range v.All {
			want := []any{Releasing, true, !c.doubted, 0}
			if i%2 == 1 {
				want = []any{c.to, false, c.doubted, 5}
			}
			require.Equal(t, want, []any{e.State, e.Assigned != nil, e.doubted, e.changed}, what)
		}
	}
}
