package wait

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// Only slots that everybody knows are free: all who hold a slot, and all who wait for one. A process that has died, or has only claimed a
// slot, does not count: otherwise, one process with a smaller size would block the others for ever.
func TestTheFreeSlotsAreThoseThatAllKnow(t *testing.T) {
	now := time.UnixMicro(0).Add(time.Hour)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		size := 1 + r.IntN(5)
		warned := map[int]int{}
		s := NewSlots("s", size, func(o table.Observation) { warned[o.LeaseRecord.Slots]++ })
		common, holders, differ := size, size, map[int]int{}
		var seen []elect.LockView
		for _, name := range s.Names {
			token := table.TokenAt(now.Add(-time.Minute))
			view := elect.LockView{Observation: table.Observation{Name: name, At: now, Exists: true, Token: token}}
			view.FreeIn = time.Duration(r.IntN(3)-1) * time.Second
			if r.IntN(3) > 0 {
				view.Heartbeat = now.Add(-time.Second)
			}
			if r.IntN(4) == 0 {
				view.Heartbeat = token.Time() // a claim that is not confirmed
			}
			if r.IntN(4) > 0 {
				view.LeaseRecord = &table.LeaseRecord{Slots: r.IntN(7)}
			}
			if theirs := view.LeaseRecord; theirs != nil && view.FreeIn > 0 && view.Heartbeat.Equal(now.Add(-time.Second)) && theirs.Slots > 0 && theirs.Slots != size {
				holders = min(holders, theirs.Slots)
				differ[theirs.Slots] = 1
			}
			seen = append(seen, view)
		}
		common = min(common, holders)
		var c options.Config
		p := New(&c, table.Table{}, SlotQueue("s"))
		p.at = now
		p.seen = []fair.Line{{At: now}}
		for range r.IntN(4) {
			x := table.Ticket{Slots: r.IntN(6), Lasts: time.Duration(r.IntN(2)) * time.Minute, Beat: now.Add(-time.Duration(1+r.IntN(2)*60) * time.Second)}
			if p.seen[0].Tickets = append(p.seen[0].Tickets, x); x.Slots > 0 && !(x.Lasts > 0 && now.Sub(x.Beat) > x.Lasts) {
				common = min(common, x.Slots)
			}
		}
		var free []elect.LockView
		for i, view := range seen {
			if view.FreeIn <= 0 && i < common {
				free = append(free, view)
			}
		}
		assert.Equal(t, holders, s.Common(seen), "seed %d", seed)
		assert.Equal(t, free, s.Free(&p, seen), "seed %d", seed)
		assert.Equal(t, differ, warned, "seed %d: one warning for each size", seed)
	}
}

// A process keeps a slot that it has claimed only if the slot is within its own size and the size of each holder. If one more slot counted,
// there could be more holders than the largest size. A mutex with the name of a slot has no size.
func TestAClaimedSlotIsKnownIfItIsWithinEachSize(t *testing.T) {
	for own := 1; own < 5; own++ {
		for theirs := range 6 {
			inHall(t, func(h *hall) {
				warned := 0
				s, name := NewSlots("s", own, func(table.Observation) { warned++ }), Slot("s", 0)
				token := steps.Claim(h.T, h.table, name)
				require.NoError(t, h.table.Confirm(h.Context(), token, table.LeaseRecord{Lease: h.config.Lease, ID: "other", Slots: theirs}, name))
				for i := range 6 {
					known, err := s.IsKnown(h.Context(), h.table, Slot("s", i))
					require.NoError(t, err)
					assert.Equal(t, i < own && (theirs == 0 || i < theirs), known, "slot %d, own size %d, theirs %d", i, own, theirs)
				}
				assert.Equal(t, theirs > 0 && theirs != own, warned == 1, "own size %d, theirs %d: %d warnings", own, theirs, warned)
			})
		}
	}
}

// A waiter that finds no slot free waits until one of the held slots can be free, and at most for a lease. It would miss a slot that
// expires, or poll without a pause, otherwise.
func TestWithoutAFreeSlotAWaiterWaitsForTheFirstThatCanBeFree(t *testing.T) {
	s := NewSlots("s", 4, nil)
	c := options.Config{}
	c.Clock, c.Lease = elect.SystemClock{}, 10*time.Second
	for want, freeIn := range map[time.Duration][]time.Duration{
		2 * time.Second: {3 * time.Second, 2 * time.Second, 5 * time.Second}, time.Second: {time.Second, -time.Second, 0, 4 * time.Second},
		10 * time.Second: {time.Minute, time.Hour}, 9 * time.Second: {time.Minute, 9 * time.Second, 0},
	} {
		p := New(&c, table.Table{}, SlotQueue("s"))
		p.seen = []fair.Line{{}}
		var seen []elect.LockView
		for _, d := range freeIn {
			seen = append(seen, elect.LockView{FreeIn: d})
		}
		assert.Equal(t, elect.Decision{Wait: want}, s.Pick(&p, nil, seen))
	}
}
