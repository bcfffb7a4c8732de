package fair

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// crowd returns a queue in which anything can be, and the ticket of one of its waiters.
func crowd(seed uint64) (own table.Ticket, all []table.Ticket) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range 1 + r.IntN(7) {
		x := ticket(1 + r.IntN(4))
		if r.IntN(3) == 0 {
			x = set(int(x.Time), time.Duration(r.IntN(9))*grace/3)
			x.Ready = r.IntN(3) > 0
		}
		if r.IntN(5) == 0 {
			x.Lasts, x.Beat = time.Minute, now.Add(-time.Duration(r.IntN(3))*time.Minute)
		}
		x.Nonce, x.Grace = fmt.Sprint(i), time.Duration(1+r.IntN(3))*grace
		x.RoundTrip = time.Duration(r.IntN(3)) * 10 * time.Millisecond
		x.Rank = r.IntN(2) * 3
		all = append(all, x)
	}
	return all[r.IntN(len(all))], all
}

// A claim deletes the expired tickets and those of the single waiters that it overtakes. All others stay in the queue, and only they are
// told of the release: a deleted ticket has no place any more, and one that stays must not be forgotten.
func TestAClaimDividesTheQueueIntoThosePassedAndThoseWhoStay(t *testing.T) {
	for seed := range uint64(2000) {
		own, all := crowd(seed)
		if own.Expired(now) { // it does not claim before it has renewed its ticket
			continue
		}
		l := line(own, all...)
		passed, stay := []table.Ticket{}, []table.Ticket{}
		for _, x := range all {
			switch {
			case x.Nonce == own.Nonce:
			case x.Expired(now), !x.Set && x.Compare(own) < 0:
				passed = append(passed, x)
			default:
				stay = append(stay, x)
			}
		}
		assert.ElementsMatch(t, passed, l.Passed(), "seed %d", seed)
		assert.Equal(t, stay, l.Behind(), "seed %d", seed)
	}
}

// A waiter leaves a free lock to all of those ahead: for a time that grows with their number, and to each ready set among them, wherever
// it is in the queue, for as long as the set may need.
func TestAWaiterLeavesAFreeLockToEachOfThoseAhead(t *testing.T) {
	for seed := range uint64(2000) {
		own, all := crowd(seed)
		gap := Gap{Lasts: time.Duration(seed%7) * grace, After: time.Duration(seed%5) * 100 * time.Millisecond}
		var longest, sets time.Duration
		n := 0
		for _, x := range all {
			ready := x.Ready && now.Before(x.Beat.Add(2*x.Grace))
			if x.Nonce == own.Nonce || x.Expired(now) || x.Set && !ready || x.Compare(own) > 0 && !own.Expired(now) {
				continue
			}
			n++
			needs := x.Grace
			if !x.Set && x.RoundTrip > 0 {
				needs = min(needs, 2*max(gap.After/16, 2*time.Millisecond)+3*x.RoundTrip)
			}
			longest = max(longest, needs+time.Duration(x.Rank)*time.Second/9)
			if x.Set { // all have waited for so long that a set may need a minute
				sets = max(sets, min(x.Beat.Add(2*x.Grace).Sub(now), time.Minute-gap.Lasts))
			}
		}
		want := time.Duration(0)
		if n > 0 {
			want = max(time.Duration(float64(longest)*math.Log2(1+float64(n)))-gap.Lasts, sets)
		}
		got := line(own, all...).Wait(gap, chance)
		assert.Equal(t, max(want, 0), max(got, 0), "seed %d", seed)
	}
}

// Each place further back polls more rarely, up to a tenth of the lease or a second, and never more often than the head: the polls of a
// long queue must not cost more than those of a short one. The pause also follows the time since the lock last changed hands.
func TestPausesGrowWithThePlaceAndTheHold(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		for _, trip := range []time.Duration{0, 3 * time.Millisecond, time.Second} {
			for _, locks := range []int{1, 1000} {
				p := Pace{Lease: lease, RoundTrip: trip, Locks: locks}
				longest := max(min(lease/10, time.Second), p.Pause(0, time.Hour))
				for held := time.Duration(0); held < time.Hour; held = 2*held + time.Millisecond {
					head := p.Pause(0, held)
					assert.LessOrEqual(t, head, p.Pause(0, 2*held))
					for place := 1; place < table.MostTickets; place++ {
						step := max(head, min(2*trip, 10*time.Millisecond))
						want := head + step
						for range place - 1 {
							want += step + head/2
						}
						assert.InDelta(t, min(want, longest), p.Pause(place, held), float64(place), "lease %v, round trip %v, held %v, place %d", lease, trip, held, place)
					}
				}
			}
		}
	}
}
