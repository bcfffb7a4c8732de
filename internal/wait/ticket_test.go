package wait

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// deletes deletes a ticket, as a waiter that overtakes it does.
func (h *hall) deletes(t table.Ticket) {
	require.NoError(h, h.table.Queue(h.Context(), t.Delete()))
}

// own divides a queue into the process's tickets and those of others.
func (h *hall) own(queue string) (own, others []table.Ticket) {
	for _, t := range h.queue(queue) {
		if t.Nonce == "nonce" {
			own = append(own, t)
		} else {
			others = append(others, t)
		}
	}
	return own, others
}

// After each poll, a waiter has one ticket in each queue, which says what it wants, counts until long after the next poll, and keeps its
// place until it has been deleted four times. What is so already costs no request, and a request that fails costs no place.
func TestAfterEachPollAWaiterHasTheTicketsThatItNeeds(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		queues := []string{"a", "b"}[:1+seed%2]
		set := len(queues) > 1
		inHall(t, func(h *hall) {
			link := &memstore.Link{Store: h.store}
			p := New(&h.config, table.Table{Store: link}, queues...)
			some := func() string { return queues[r.IntN(len(queues))] }
			lasts := table.LastsFor(h.config.Lease, set)
			var place table.Token
			gone, failed := 0, false
			for range 60 {
				key, fails := p.Ticket.Key, false
				var meanwhile *table.Ticket // deleted between the poll and its writes
				switch queue := some(); r.IntN(8) {
				case 0:
					time.Sleep(time.Duration(r.Int64N(int64(lasts))) * 5 / 4)
				case 1, 2:
					own, _ := h.own(queue)
					if i := slices.IndexFunc(own, p.Own.Same); i >= 0 && r.IntN(2) == 0 {
						meanwhile = &own[i]
					} else if i >= 0 {
						h.deletes(own[i])
					}
				case 3:
					key = fmt.Sprint(r.IntN(3))
				case 4:
					h.puts(queue, "nonce", func(old *table.Ticket) { old.Time -= table.Token(r.IntN(1000000)) })
				case 5:
					h.puts(queue, "other", func(o *table.Ticket) {
						o.Time -= table.Token(r.IntN(100000))
						o.Lasts = time.Duration(1+r.IntN(2)*60000) * time.Millisecond
					})
				case 6:
					if _, others := h.own(queue); others != nil {
						h.deletes(others[0])
					}
				case 7:
					fails = true
				}
				p.Ticket.Key = key
				time.Sleep(time.Duration(1+r.IntN(300)) * time.Millisecond)
				seen := h.poll(&p)
				for i := range seen { // nobody passes over another
					seen[i].FreeIn = time.Second
				}
				had, old, first, beat := true, false, true, p.at
				for _, queue := range queues {
					own, others := h.own(queue)
					i := slices.IndexFunc(own, func(t table.Ticket) bool { return t.Time == place })
					if had = had && i >= 0; had {
						beat = own[i].Beat
					}
					old = old || len(own) > 1 || i < 0 && len(own) > 0
					first = first && !slices.ContainsFunc(others, func(t table.Ticket) bool { return !t.Expired(p.at) && (place == 0 || t.Time < p.Own.Time) })
				}
				if age := p.at.Sub(p.Own.Beat); place != 0 && !had && !failed && age <= lasts {
					gone++
				}
				if meanwhile != nil {
					h.deletes(*meanwhile)
				}
				link.Counts()
				link.Refuse(func(string) error {
					if fails {
						return errors.New("refused")
					}
					return nil
				})
				wrote := p.Own
				err := p.Attend(h.Context(), "nonce", seen)
				writes := link.Counts()["queue"]
				if failed = err != nil; failed {
					assert.True(t, fails)
					if place == 0 || gone > 3 {
						place, gone = p.Own.Time, 0
					}
					continue
				}
				if meanwhile != nil && had {
					own, _ := h.own(meanwhile.Queue)
					assert.False(t, slices.ContainsFunc(own, meanwhile.Same), "seed %d: it comes back", seed)
					continue
				}
				if place == 0 || gone > 3 {
					assert.Equal(t, table.TurnFor(table.TokenAt(p.at), 2), p.Own.Time, "seed %d: a place at the end", seed)
					place, gone = p.Own.Time, 0
				}
				age := p.at.Sub(beat)
				due := !had || old || wrote.Key != key || wrote.Beat.IsZero() || age >= lasts/3 || set && first && (!wrote.Ready || age >= wrote.Grace/2)
				assert.Equal(t, due, writes == 1, "seed %d: %d writes", seed, writes)
				for _, queue := range queues {
					own, others := h.own(queue)
					if wrote.Time != place { // the last place goes with the next poll
						own = own[len(own)-1:]
					}
					require.Len(t, own, 1, "seed %d", seed)
					assert.Equal(t, place, own[0].Time, "seed %d", seed)
					if had { // else it says so after the next poll
						assert.Equal(t, key, own[0].Key, "seed %d", seed)
					}
					assert.Less(t, p.at.Sub(own[0].Beat), lasts/3, "seed %d", seed)
					if set && first && wrote.Time == place {
						assert.True(t, own[0].Ready, "seed %d", seed)
						assert.Less(t, p.at.Sub(own[0].Beat), own[0].Grace/2, "seed %d", seed)
					}
					if due && (!old || own[0].Beat.Equal(p.at)) {
						assert.False(t, slices.ContainsFunc(others, func(t table.Ticket) bool { return t.Expired(p.at) }), "seed %d: an expired ticket", seed)
					}
				}
			}
			link.Refuse(nil)
			for range 2 {
				require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
			}
			p.Forget()
			for _, queue := range queues {
				own, _ := h.own(queue)
				assert.Empty(t, own, "seed %d", seed)
			}
		})
	}
}

// A claim deletes the waiter's tickets in each of its queues, and those that it overtakes. All others stay: a waiter would lose its place
// otherwise, or the next would wait for one that is gone.
func TestAClaimLeavesTheTicketsOfThoseWhoWaitOn(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		queues := []string{"a", "b", "c"}[:1+seed%3]
		inHall(t, func(h *hall) {
			p := New(&h.config, h.table, queues...)
			put := func() {
				for _, queue := range queues {
					for range r.IntN(4) {
						h.puts(queue, fmt.Sprint("w", r.IntN(1000)), func(o *table.Ticket) {
							o.Set = r.IntN(3) == 0
							o.Lasts = time.Duration(1+r.IntN(2)*3600000) * time.Millisecond
						})
					}
				}
			}
			put()
			time.Sleep(10 * time.Millisecond)
			queued := r.IntN(3) > 0
			if queued {
				require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
				put()
			}
			time.Sleep(10 * time.Millisecond)
			seen := h.poll(&p)
			stay := map[string][]table.Ticket{}
			for i, queue := range queues {
				seen[i].FreeFor = time.Hour // those ahead have let their chance go by
				for _, x := range h.queue(queue) {
					if x.Nonce != "nonce" && !x.Expired(p.at) && (x.Set || queued && x.Time > p.Own.Time) {
						stay[queue] = append(stay[queue], x)
					}
				}
			}
			d := p.InOrder(elect.All)(seen)
			require.NotNil(t, d.Claim, "seed %d", seed)
			require.NoError(t, h.table.Queue(h.Context(), d.Also...))
			for _, queue := range queues {
				assert.Equal(t, stay[queue], h.queue(queue), "seed %d", seed)
			}
		})
	}
}

// The same for a slot, where each of the free ones is left to one of those ahead while there are enough, and no longer than for a grace.
func TestAClaimOfASlotLeavesTheTicketsOfThoseWhoWaitOn(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		inHall(t, func(h *hall) {
			s := NewSlots("s", 1+r.IntN(4), nil)
			p := New(&h.config, h.table, SlotQueue("s"))
			look := func() []elect.LockView {
				c := h.config.Candidate(h.table, s.Names...)
				c.Queue = &p
				seen, err := c.Look(h.Context())
				require.NoError(t, err)
				for i := range seen {
					seen[i].FreeIn = time.Hour
				}
				return seen
			}
			put := func() {
				for range r.IntN(5) {
					h.puts(SlotQueue("s"), fmt.Sprint("w", r.IntN(1000)), func(o *table.Ticket) { o.Lasts = time.Duration(1+r.IntN(3)*3600000) * time.Millisecond })
				}
			}
			put()
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, p.Attend(h.Context(), "nonce", look()))
			put()
			time.Sleep(10 * time.Millisecond)
			seen := look()
			free := seen[:r.IntN(len(seen)+1)]
			lost := 0
			for i := range free {
				n := r.IntN(3)
				free[i].FreeIn, free[i].Exists, free[i].FreeFor = 0, true, time.Duration(n)*(time.Second+2*time.Second/9)+time.Millisecond
				lost += n
			}
			var ahead, behind []table.Ticket
			for _, x := range h.queue(SlotQueue("s")) {
				if x.Nonce != "nonce" && !x.Expired(p.at) && x.Time < p.Own.Time {
					ahead = append(ahead, x)
				} else if x.Nonce != "nonce" && !x.Expired(p.at) {
					behind = append(behind, x)
				}
			}
			d := s.Pick(&p, s.Free(&p, seen), seen)
			require.Equal(t, len(free) > 0 && len(ahead) < len(free)+lost, d.Claim != nil, "seed %d", seed)
			switch {
			case d.Claim != nil:
				assert.Equal(t, free[len(ahead)%len(free)].Name, d.Claim[0].Name, "seed %d", seed)
				require.NoError(t, h.table.Queue(h.Context(), d.Also...))
				assert.Equal(t, slices.Concat(ahead[max(len(ahead)-len(free)+1, 0):], behind), slices.Concat([]table.Ticket{}, h.queue(SlotQueue("s"))), "seed %d", seed)
			case len(free) > 0:
				assert.Equal(t, time.Second+2*time.Second/9-time.Millisecond, d.Wait, "seed %d: until the next grace has passed", seed)
			default:
				assert.Equal(t, h.config.Lease, d.Wait, "seed %d", seed)
			}
		})
	}
}
