package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// punctual is a clock whose pauses are not shortened at random.
type punctual struct{ elect.SystemClock }

func (punctual) Random(time.Duration) time.Duration { return 0 }

func isPunctual(c *options.Config) { c.Clock = punctual{} }

// A waiter rests for the pause of its place, and no longer than its candidate wants or than it leaves the lock to others. The next poll
// forgets the latter: the waiter would poll without a pause for the rest of its wait, otherwise.
func TestHowLongAWaiterRests(t *testing.T) {
	for _, ahead := range []int{0, 1, 3} {
		for name, queues := range map[string][]string{"a mutex": {"a"}, "a set": {"a", "b"}, "a semaphore": {"s/slot/"}} {
			inHall(t, func(h *hall) {
				for i := range ahead {
					h.puts(queues[0], fmt.Sprint("ahead", i), func(o *table.Ticket) { o.Lasts = time.Hour })
				}
				time.Sleep(time.Millisecond)
				slots, locks := NewSlots("s", 1000, nil), len(queues)
				p := New(&h.config, h.table, queues...)
				choose := p.InOrder(elect.All)
				if name == "a semaphore" {
					locks, p.Ticket.Slots = 1000, 1000
					choose = func(seen []elect.LockView) elect.Decision { return slots.Pick(&p, seen[:1], seen) }
				}
				poll := func(held time.Duration) (seen []elect.LockView) { // of locks that changed hands before that time
					b := p.Asks()
					b.At = time.Now().Truncate(time.Microsecond)
					for _, queue := range queues {
						for _, t := range h.queue(queue) {
							b.Rows = append(b.Rows, rowOf(t, b.At))
						}
						seen = append(seen, elect.LockView{Observation: table.Observation{Name: queue, Exists: true, At: b.At, Token: table.TokenAt(b.At.Add(-held))}})
					}
					p.Learns(b)
					return seen
				}
				rests := func(seen []elect.LockView, atMost time.Duration) time.Duration {
					began := time.Now()
					p.Rest(context.Background(), elect.Step{Seen: seen, Pause: atMost, Latest: time.Hour})
					return time.Since(began)
				}
				for _, held := range []time.Duration{0, 400 * time.Millisecond, 5 * time.Second, time.Hour} {
					pause := fair.Pace{Lease: h.config.Lease, Locks: locks}.Pause(ahead, held)
					assert.Equal(t, pause, rests(poll(held), time.Hour), "%s, place %d, held %v", name, ahead, held)
					assert.Equal(t, time.Millisecond, rests(poll(held), time.Millisecond))
					seen := poll(held)
					d := choose(seen)
					assert.Equal(t, ahead == 0, d.Claim != nil)
					if ahead > 0 {
						require.Positive(t, d.Wait)
						pause = min(pause, d.Wait)
					}
					assert.Equal(t, pause, rests(seen, time.Hour), "%s, place %d, held %v: as long as it leaves the lock to others", name, ahead, held)
					if ahead > 0 {
						for i := range seen {
							seen[i].FreeFor = d.Wait - time.Millisecond
						}
						require.Nil(t, choose(seen).Claim)
						assert.Equal(t, time.Millisecond, rests(seen, time.Hour), "%s, place %d, held %v: the rest of that time", name, ahead, held)
					}
				}
			}, isPunctual)
		}
	}
}

// After short terms, a waiter leaves a free lock to the waiter ahead only for a short time, because the waiter ahead polls often. If a long
// term ended recently, it leaves the lock for the whole grace: the waiter ahead may still be in a pause that it began during the long term.
func TestTheTermsThatPollsHaveShownSayHowLongToWait(t *testing.T) {
	const short, delay = 200 * time.Millisecond, 2 * time.Second / 9 // the delay is that of the priority
	for name, c := range map[string]struct{ before, ago, wait time.Duration }{
		"short terms":                     {short, 10 * time.Second, 2*short/16 + 3*10*time.Millisecond + delay},
		"a long one, a while ago":         {time.Hour, 10 * time.Second, 2*short/16 + 3*10*time.Millisecond + delay},
		"a long one, in the last seconds": {time.Hour, time.Second, time.Second + delay},
	} {
		inHall(t, func(h *hall) {
			h.puts("a", "ahead", nil)
			time.Sleep(time.Millisecond)
			p := New(&h.config, h.table, "a")
			require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
			poll := func(held time.Duration) []elect.LockView {
				seen := h.poll(&p)
				seen[0].Exists, seen[0].Token = true, table.TokenAt(p.at.Add(-held))
				return seen
			}
			rests := func(held, d time.Duration) {
				for began := time.Now(); time.Since(began) < d; {
					seen := poll(held)
					seen[0].Heartbeat, seen[0].FreeIn = p.at, h.config.Lease
					p.Rest(h.Context(), elect.Step{Seen: seen, Pause: h.config.Lease, Latest: h.config.Lease})
				}
			}
			rests(c.before, time.Second)
			rests(short, c.ago)
			seen := poll(short)
			seen[0].Freed = p.at
			d := p.InOrder(elect.All)(seen)
			assert.Nil(t, d.Claim, name)
			assert.Equal(t, c.wait, d.Wait, name)
		}, isPunctual)
	}
}

// The first poll may also have opened the connection, so it says little about how slow a waiter is. Later ones do, and others leave a slow
// waiter more time.
func TestATicketSaysHowSlowItsWaiterIs(t *testing.T) {
	inHall(t, func(h *hall) {
		link := &memstore.Link{Store: h.store}
		slow := table.Table{Store: link}
		p := New(&h.config, slow, "a")
		poll := func(takes time.Duration) table.Ticket {
			link.After(func(step string) {
				if step == "observe" {
					time.Sleep(takes)
				}
			})
			c := h.config.Candidate(slow, "a")
			c.Queue = &p
			seen, err := c.Look(h.Context())
			require.NoError(t, err)
			p.Ticket.Key += "x" // so that it is written
			require.NoError(t, p.Attend(h.Context(), "nonce", seen))
			return h.queue("a")[0]
		}
		for _, c := range []struct{ takes, says time.Duration }{{time.Second, maxFirstTrip}, {time.Second, time.Second}, {300 * time.Millisecond, 300 * time.Millisecond}, {0, 0}} {
			got := poll(c.takes)
			assert.Equal(t, c.says, got.RoundTrip)
			assert.Equal(t, fair.Pace{Lease: h.config.Lease, RoundTrip: c.says}.Grace(), got.Grace)
		}
	})
}

// A waiter whose ticket has expired comes last until it has renewed it, as others do not count it any more.
func TestAWaiterWhoseTicketHasExpiredComesLast(t *testing.T) {
	inHall(t, func(h *hall) {
		p := New(&h.config, h.table, "a")
		require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
		for i := range 3 {
			h.puts("a", fmt.Sprint("w", i), func(o *table.Ticket) { o.Lasts = time.Hour })
		}
		h.poll(&p)
		assert.Zero(t, p.Ahead())
		time.Sleep(time.Minute)
		seen := h.poll(&p)
		assert.Equal(t, 3, p.Ahead())
		require.NoError(t, p.Attend(h.Context(), "nonce", seen))
		h.poll(&p)
		assert.Zero(t, p.Ahead(), "its old place")
	})
}

// A set whose ticket comes after those that a poll has read counts as the last, although those that it has read count for nothing, and its
// ticket is not taken for deleted.
func TestASetBehindThoseThatWereReadIsNotFirst(t *testing.T) {
	for _, n := range []int{table.MostTickets - 1, table.MostTickets, table.MostTickets + 1} {
		inHall(t, func(h *hall) {
			now := time.Now()
			p := New(&h.config, h.table, "q", "other")
			all := tickets(now, n, n)
			p.Own = table.Ticket{Queue: "q", Time: table.TokenAt(now.Add(time.Hour)), Nonce: "nonce", Beat: now, Grace: time.Second, Lasts: time.Minute, Set: true}
			for range 2 {
				b := p.Asks()
				b.At = now
				for i, q := range p.Queues {
					for _, t := range append([]table.Ticket{p.Own}, all...) {
						t.Queue = q
						if t.Row() <= b.Queues[i].To && (t.Nonce != "nonce" || n < table.MostTickets) { // the own one is not read
							b.Rows = append(b.Rows, rowOf(t, now))
						}
					}
				}
				p.Learns(b)
			}
			held := []elect.LockView{{FreeIn: time.Second}, {FreeIn: time.Second}}
			writes := p.due("nonce", held)
			assert.Equal(t, n < table.MostTickets, p.Own.Ready, n)
			assert.Equal(t, p.Own.Ready, len(writes) > 0, n)
			assert.Equal(t, p.Own.Ready, p.Ahead() == 0, n)
		})
	}
}

// The write of a ticket has the time of one attempt, whatever becomes of its ctx: its outcome would not be known otherwise, and the ticket
// could not be deleted. The deletion has three times as long, because a request may be lost.
func TestARequestForTicketsTakesAsLongAsItMay(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		inHall(t, func(h *hall) {
			h.config.Lease = lease
			link := &memstore.Link{Store: h.store}
			p := New(&h.config, table.Table{Store: link}, "a")
			ctx, cancel := context.WithTimeout(h.Context(), time.Millisecond)
			defer cancel()
			seen := h.poll(&p)
			link.Cut()
			began := time.Now()
			assert.Error(t, p.Attend(ctx, "nonce", seen))
			assert.Equal(t, elect.Attempt(lease), time.Since(began))
			link.Mend()
			require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
			require.Len(t, h.queue("a"), 1)

			link.Cut()
			time.AfterFunc(2*elect.Attempt(lease), link.Mend)
			p.Forget()
			assert.Empty(t, h.queue("a"))
			p.Own.Nonce = "again"
			link.Refuse(func(string) error { return errors.New("refused") })
			began = time.Now()
			p.Forget()
			assert.LessOrEqual(t, time.Since(began), 3*elect.Attempt(lease))
		})
	}
}
