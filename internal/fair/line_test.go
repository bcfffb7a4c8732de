package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

const grace = 200 * time.Millisecond

var now = time.UnixMicro(1_000_000_000)

func chance(time.Duration) time.Duration { return 0 }

func ticket(at int) table.Ticket {
	return table.Ticket{Queue: "m", Time: table.Token(at), Nonce: fmt.Sprint("n", at), Grace: grace, Beat: now.Add(-time.Hour)}
}

func line(own table.Ticket, others ...table.Ticket) Line {
	return Line{Own: own, Tickets: others, At: now}
}

func set(at int, ready time.Duration) table.Ticket {
	t := ticket(at)
	t.Set, t.Ready, t.Beat, t.Lasts = true, true, now.Add(-ready), table.LastsFor(0, true)
	return t
}

func keyed(at int, key string) table.Ticket {
	t := ticket(at)
	t.Key = key
	return t
}

func TestFirstComeFirstServed(t *testing.T) {
	a, b, c := ticket(1), ticket(2), ticket(3)
	assert.Equal(t, 0, line(a, a, b, c).Place())
	assert.Equal(t, 2, line(c, a, b, c).Place())
	assert.Equal(t, 3, line(table.Ticket{}, a, b, c).Place(), "one that has no ticket comes last")
	twin := a
	twin.Nonce = "n0"
	assert.Equal(t, 1, line(a, twin, a).Place(), "of one instant, all agree who is first")
	assert.Equal(t, 0, line(twin, twin, a).Place())
	old := a
	old.Nonce = c.Nonce
	assert.Equal(t, 0, line(c, old, c).Place(), "nobody waits for a ticket of its own process")
	assert.True(t, line(c, a, c).Has())
	assert.False(t, line(c, a, old).Has(), "an old ticket of its own process is another one")
}

func TestTheHeadWaitsForNobodyAndTheOthersForItsGrace(t *testing.T) {
	a, b, c := ticket(1), ticket(2), ticket(3)
	assert.Zero(t, line(a, a, b).Wait(Gap{}, chance))
	assert.Equal(t, grace, line(b, a, b).Wait(Gap{}, chance))
	assert.Equal(t, 50*time.Millisecond, line(b, a, b).Wait(Gap{Lasts: 150 * time.Millisecond}, chance))
	assert.LessOrEqual(t, line(b, a, b).Wait(Gap{Lasts: grace}, chance), time.Duration(0))
	slow := a
	slow.Grace = time.Second
	assert.Equal(t, time.Second, line(b, slow, b).Wait(Gap{}, chance), "as long as it asks for")
	two := line(c, a, b, c).Wait(Gap{}, chance)
	assert.Greater(t, two, grace)
	assert.Less(t, two, 2*grace, "not the graces of all")
}

// A poll may read only the first tickets of a queue. A waiter knows its place if its own ticket is among them, even as the last one. A waiter
// with a later ticket, or with none, counts as the 33rd.
func TestAWaiterKnowsItsPlaceIfItsTicketWasRead(t *testing.T) {
	a, b, c := ticket(1), ticket(2), ticket(3)
	for end, places := range map[string][4]int{
		"":      {0, 1, 2, 3},
		a.Row(): {0, table.MostTickets, table.MostTickets, table.MostTickets},
		b.Row(): {0, 1, table.MostTickets, table.MostTickets},
		c.Row(): {0, 1, 2, table.MostTickets},
	} {
		for i, own := range []table.Ticket{a, b, c, {Queue: "m"}} {
			l := line(own, a, b, c)
			l.End = end
			assert.Equal(t, places[i], l.Place(), "ticket %d, read up to %q", i, end)
			assert.Equal(t, places[i] == table.MostTickets, l.Beyond(), "ticket %d, read up to %q", i, end)
		}
	}
}

// After many waiters have died, the living ones wait for a few graces, not for the grace of each dead one.
func TestManyDeadCostAFewGraces(t *testing.T) {
	var dead []table.Ticket
	for i := range table.MostTickets {
		dead = append(dead, ticket(i+1))
	}
	l := line(ticket(1000), dead...)
	l.End = dead[len(dead)-1].Row()
	assert.True(t, l.Beyond())
	assert.Equal(t, table.MostTickets, l.Place())
	assert.Less(t, l.Wait(Gap{}, chance), 6*grace)
	assert.Equal(t, grace, l.Wait(Gap{}, func(d time.Duration) time.Duration { return d })-l.Wait(Gap{}, chance), "chance decides among those beyond")
	l.Own = ticket(5)
	assert.False(t, l.Beyond(), "its ticket is gone, and would be among those that were read")
}

// The first tickets may all be of those that count for nothing. A newcomer still leaves a free lock to the waiters whose
// tickets it has not read.
func TestANewcomerComesAfterTicketsThatWereNotRead(t *testing.T) {
	var idle []table.Ticket
	for i := range table.MostTickets {
		s := set(i+1, 0)
		s.Ready = false
		idle = append(idle, s)
	}
	l := line(table.Ticket{}, idle...)
	assert.Zero(t, l.Place())
	l.End = idle[len(idle)-1].Row()
	assert.Equal(t, table.MostTickets, l.Place())
	assert.Positive(t, l.Wait(Gap{}, chance))
}

// Else its claim would delete the ticket of a waiter that leaves the lock to those of higher priority for a while.
func TestANewcomerIsBeforeThoseOfLowerPriority(t *testing.T) {
	l := line(table.Ticket{}, ticket(1))
	low := ticket(2)
	low.Rank = 1
	low.Time = table.TurnFor(low.Time, low.Rank)
	l.Tickets = append(l.Tickets, low)
	assert.Equal(t, []table.Ticket{ticket(1)}, l.Before())
	l.Own.Rank = 1
	assert.Len(t, l.Before(), 2)
}

func expired(at int) table.Ticket {
	t := ticket(at)
	t.Lasts = time.Minute
	return t
}

// Nobody waits for a ticket that has expired, and a claim deletes it. Once its waiter has renewed it, it counts at its
// old place again.
func TestAnExpiredTicketDoesNotCount(t *testing.T) {
	a, b, c := expired(1), ticket(2), expired(3)
	l := line(b, a, b, c)
	assert.Equal(t, 0, l.Place())
	assert.Equal(t, []table.Ticket{a, c}, l.Passed())
	assert.Equal(t, []table.Ticket{c}, line(a, a, b, c).Expired(), "its own is not to be deleted")
	slot, passed, _, ok := line(b, a, b, c).Slot([]time.Duration{0})
	assert.True(t, ok)
	assert.Zero(t, slot+passed)
	assert.Equal(t, 1, line(a, a, b, c).Place(), "its own waiter sees what the others see, and comes last")
	renewed := a
	renewed.Beat = now.Add(-time.Minute)
	assert.Equal(t, 1, line(b, renewed, b).Place())
	assert.Equal(t, 0, line(renewed, renewed, b).Place())
}

// All waiters whose tickets are in one snapshot see the same order, with and without keys. Of each two waiters, one is before
// the other. If a is before b, and b is before c, then a is before c. A later waiter overtakes only larger keys.
func TestAllSeeTheSameOrder(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		var all, living []table.Ticket
		for i := range 2 + r.IntN(6) {
			x := keyed(1+r.IntN(5), []string{"", "", "1", "2", "3", "2026-11-21T03:00:00Z", "2026-11-21T04:00:00Z"}[r.IntN(7)])
			x.Nonce = fmt.Sprint(i)
			if r.IntN(3) == 0 {
				x.Lasts, x.Beat = time.Minute, now.Add(-time.Duration(r.IntN(3))*time.Minute)
			}
			if all = append(all, x); !x.Expired(now) {
				living = append(living, x)
			}
		}
		for _, a := range all {
			before := line(a, all...).Before()
			if a.Expired(now) {
				assert.ElementsMatch(t, living, before, "seed %d", seed)
				continue
			}
			for _, b := range living {
				first := slices.Contains(before, b)
				after := slices.Contains(line(b, all...).Before(), a)
				assert.Equal(t, b != a, first != after, "seed %d", seed)
				if first {
					assert.Subset(t, before, line(b, all...).Before(), "seed %d", seed)
					makesWay := slices.ContainsFunc(before, func(c table.Ticket) bool { return smallerKey(c, a) })
					assert.True(t, b.Compare(a) < 0 || makesWay, "seed %d", seed)
				}
				assert.True(t, first || !smallerKey(b, a), "seed %d", seed)
			}
		}
	}
}

func smallerKey(a, b table.Ticket) bool {
	return a.Key != "" && a.Key < b.Key && table.Comparable(a.Key, b.Key)
}

func TestASetIsWaitedForOnlyOnceItIsFirstEverywhere(t *testing.T) {
	own := ticket(5)
	idle := set(1, 0)
	idle.Ready = false
	assert.Equal(t, 0, line(own, idle, own).Place())
	assert.Equal(t, 1, line(own, set(1, 0), own).Place())
	assert.Equal(t, 2*grace, line(own, set(1, 0), own).Wait(Gap{Lasts: time.Second}, chance), "nobody passes it, though the lock has been free for longer than its grace")
	assert.Equal(t, 2*grace, line(own, set(1, 0), set(2, grace), own).Wait(Gap{Lasts: time.Second}, chance), "of two, for the one that takes longer")
	assert.Equal(t, 0, line(own, set(1, 2*grace), own).Place(), "it has not been heard from")
	assert.Empty(t, line(own, idle, set(2, time.Hour), own).Before())
}

// The longer a set has waited, the longer a free lock is left to it, whatever its priority: the set may still need another lock. The lock is
// not left to the set for ever, because the holder of the other lock may itself be waiting for the free one.
func TestAFreeLockIsNotLeftToASetForEver(t *testing.T) {
	for rank := range table.MaxRank + 1 {
		for waited, most := range map[time.Duration]time.Duration{time.Second: table.MaxGrace, 80 * time.Second: table.MaxGrace, 4 * time.Minute: 15 * time.Second, time.Hour: time.Minute} {
			own, ready := ticket(5), set(1, 0)
			own.Rank, own.Time, ready.Rank, ready.Time = rank, table.TurnFor(5, rank), rank, table.TurnFor(1, rank)
			l := line(own, ready, own)
			l.At = ready.Since().Add(waited)
			l.Tickets[0].Beat = l.At
			assert.Equal(t, time.Millisecond, l.Wait(Gap{Lasts: most - time.Millisecond}, chance), "rank %d, after %v", rank, waited)
			assert.LessOrEqual(t, l.Wait(Gap{Lasts: most}, chance), time.Duration(0), "rank %d, after %v", rank, waited)
			assert.Empty(t, l.Passed(), "and it keeps its place")
		}
	}
}

func TestASetThatIsNotHeardFromLosesItsPlace(t *testing.T) {
	own, ready, single := ticket(5), set(1, 0), ticket(2)
	l := line(own, ready, single, own)
	l.At = ready.Beat.Add(40 * time.Second)
	assert.Equal(t, []table.Ticket{single}, l.Passed())
	l.At = ready.Beat.Add(time.Minute + time.Second)
	assert.ElementsMatch(t, []table.Ticket{single, ready}, l.Passed())
}

func TestSmallerKeysGoFirst(t *testing.T) {
	one, two := keyed(9, "1"), keyed(2, "2")
	assert.Equal(t, 0, line(one, two, one).Place(), "though it came later: after the larger key it would not be run")
	assert.Equal(t, 1, line(two, two, one).Place())
	same := keyed(3, "2")
	assert.Equal(t, 1, line(same, two, same).Place(), "of one key, who came first")
	mutex := ticket(5)
	assert.Equal(t, 1, line(mutex, two, mutex).Place(), "to one that has no key, keys are nothing")
	assert.Equal(t, 0, line(mutex, two, mutex, one).Place(), "the larger key makes way for the smaller one, which came after the mutex")
	assert.Equal(t, 1, line(one, two, mutex, one).Place())
	assert.Equal(t, 2, line(two, two, mutex, one).Place())
	tick := keyed(1, "2026-11-21T03:00:00Z")
	assert.Equal(t, 1, line(two, tick, two).Place(), "a tick and another key can't be compared")
	assert.Equal(t, 0, line(table.Ticket{Key: "1"}, two).Place(), "without a ticket, too")
}

// The waiter at place k takes the k-th free slot, so no two waiters choose the same slot.
func TestWaitersTakeDifferentSlots(t *testing.T) {
	a, b, c := ticket(1), ticket(2), ticket(3)
	all := []table.Ticket{a, b, c}
	free := []time.Duration{0, 0}
	for i, own := range all {
		slot, passed, wait, ok := line(own, all...).Slot(free)
		assert.Equal(t, i < 2, ok)
		if ok {
			assert.Equal(t, i, slot)
			assert.Zero(t, passed)
		} else {
			assert.Equal(t, grace, wait)
		}
	}
	slot, passed, _, ok := line(c, all...).Slot([]time.Duration{grace + time.Millisecond, 0})
	assert.True(t, ok, "one of those before has let its chance go by")
	assert.Equal(t, 0, slot)
	assert.Equal(t, 1, passed)
	_, _, _, ok = line(ticket(4), append(all, ticket(4))...).Slot([]time.Duration{grace, grace})
	assert.True(t, ok, "one at each slot")
	_, passed, _, ok = line(b, all...).Slot([]time.Duration{time.Hour, time.Hour})
	assert.True(t, ok)
	assert.Zero(t, passed, "there is one for each of them, however long they were free")
	_, _, wait, ok := line(c, all...).Slot([]time.Duration{grace / 4, 0})
	assert.False(t, ok)
	assert.Equal(t, 3*grace/4, wait)
	_, _, _, ok = line(a, all...).Slot(nil)
	assert.False(t, ok)
}

// There is always a waiter that can continue: among the living waiters that look at the same instant, one does not have
// to wait once the graces have passed.
func TestSomebodyGoesOn(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []table.Ticket
		for i := range 1 + r.IntN(8) {
			x := ticket(1 + r.IntN(5))
			x.Nonce = fmt.Sprint(i)
			switch r.IntN(4) {
			case 0:
				x = set(int(x.Time), time.Duration(r.IntN(3))*2*grace)
				x.Nonce = fmt.Sprint(i)
			case 1:
				x.Key = fmt.Sprint(r.IntN(3))
			case 2:
				x.Lasts = time.Duration(1+r.IntN(2)) * time.Hour // the shorter ones have nearly expired
				x.Beat = x.Beat.Add(-time.Duration(r.IntN(2)) * time.Second)
			}
			all = append(all, x)
		}
		goes := false
		for _, own := range all {
			goes = goes || line(own, all...).Wait(Gap{Lasts: 4 * grace}, chance) <= 0
		}
		assert.True(t, goes, "seed %d", seed)
	}
}

func TestThePaceOfAWaiter(t *testing.T) {
	p := Pace{Lease: 10 * time.Second, RoundTrip: 5 * time.Millisecond}
	assert.Equal(t, 2*time.Millisecond, p.Pause(0, 0))
	assert.Equal(t, 10*time.Millisecond, p.Pause(0, 160*time.Millisecond), "a sixteenth")
	assert.Equal(t, 500*time.Millisecond, p.Pause(0, time.Hour), "20 polls a lease")
	assert.Equal(t, 30*time.Millisecond, p.Pause(1, 240*time.Millisecond))
	assert.Equal(t, time.Second, p.Pause(31, time.Hour))
	assert.Equal(t, 1015*time.Millisecond, p.Grace())
	many := Pace{Lease: 10 * time.Second, Locks: 1000}
	assert.Equal(t, 100*time.Millisecond, many.Pause(0, 0), "who reads a thousand locks looks more rarely")
	short := Pace{Lease: time.Second, RoundTrip: 300 * time.Millisecond}
	assert.Equal(t, 50*time.Millisecond, short.Pause(0, time.Hour))
	assert.Equal(t, time.Second, short.Grace(), "who is slow asks for more")
	assert.Equal(t, table.MaxGrace, Pace{Lease: time.Hour, RoundTrip: time.Minute}.Grace())
	for place := range 40 {
		assert.LessOrEqual(t, p.Pause(place, time.Second), p.Pause(place+1, time.Second))
	}
}

// A dead waiter costs the others little after a short hold, because a living one would have polled often. Whoever waits for
// it leaves it the time in which it would have claimed, whatever its lease and however long the lock was held.
func TestTheGraceFollowsTheHold(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, 24 * time.Hour} {
		for _, trip := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond} {
			p := Pace{Lease: lease, RoundTrip: trip}
			head := ticket(1)
			head.RoundTrip, head.Grace = trip, p.Grace()
			for held := time.Millisecond; held < 48*time.Hour; held *= 3 {
				wait := line(ticket(2), head, ticket(2)).Wait(Gap{After: held}, chance)
				assert.GreaterOrEqual(t, wait, p.Pause(0, held)+2*trip, "a pause, a poll and a claim: lease %v, round trip %v, held %v", lease, trip, held)
				assert.LessOrEqual(t, wait, p.Grace(), "no longer than the ticket asks for")
			}
		}
	}
	head := ticket(1)
	head.RoundTrip, head.Grace = 5*time.Millisecond, time.Second
	own := ticket(2)
	assert.Equal(t, 40*time.Millisecond, line(own, head, own).Wait(Gap{After: 200 * time.Millisecond}, chance))
	head.RoundTrip = 0
	assert.Equal(t, time.Second, line(own, head, own).Wait(Gap{After: 200 * time.Millisecond}, chance), "an older version does not say how fast it is")
	ready := set(1, 1900*time.Millisecond)
	ready.RoundTrip, ready.Grace = 5*time.Millisecond, time.Second
	assert.Equal(t, time.Second, line(own, ready, own).Wait(Gap{After: 200 * time.Millisecond}, chance), "a set polls more rarely, the more locks it has")
}
