package wait

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// hall is a table in which a place waits, in virtual time.
type hall struct {
	*testing.T
	store  *memstore.Store
	table  table.Table
	config options.Config
}

func inHall(t *testing.T, test func(*hall), opts ...options.Option) {
	synctest.Test(t, func(t *testing.T) {
		h := &hall{T: t, store: &memstore.Store{}}
		h.config = options.New(append([]options.Option{func(c *options.Config) { c.Store, c.ID, c.Lease, c.Rank = h.store, "own", 10*time.Second, 2 }}, opts...))
		h.table, _ = h.config.Table(nil, "locks")
		test(h)
	})
}

// puts puts the ticket of another waiter into a queue.
func (h *hall) puts(queue, nonce string, change func(*table.Ticket)) table.Ticket {
	time.Sleep(time.Millisecond)
	other := table.Ticket{Queue: queue, Time: table.TurnFor(table.TokenAt(time.Now()), 2), Nonce: nonce, Grace: time.Second, Lasts: time.Minute, RoundTrip: 10 * time.Millisecond, Rank: 2}
	if change != nil {
		change(&other)
	}
	require.NoError(h, h.table.Queue(h.Context(), other.Put()))
	return other
}

// putsReachable is like puts, for a waiter that can be notified at the returned address.
func (h *hall) putsReachable(queue, nonce string, network, host byte) (table.Ticket, netip.AddrPort) {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, network, host}), 7700)
	return h.puts(queue, nonce, func(o *table.Ticket) { o.Notify = notify.New(at, elect.SystemClock{}, nil).Contact("", o.Row()) }), at
}

// outbox has the receivers of the messages that a place has sent.
type outbox struct {
	mu sync.Mutex
	to []netip.AddrPort
}

// notifies gives a place a Notifier that sends to the outbox.
func (o *outbox) notifies(c *options.Config) {
	c.Notifier = notify.New(netip.MustParseAddrPort("10.0.0.1:7700"), elect.SystemClock{}, func(_ []byte, to netip.AddrPort) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.to = append(o.to, to)
	})
}

// since returns the receivers since the last call.
func (o *outbox) since() []netip.AddrPort {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.to
	o.to = nil
	return all
}

// rowOf returns the row of a ticket that its waiter last wrote at the given time.
func rowOf(t table.Ticket, at time.Time) table.Row {
	w := t.Put()
	return table.Row{Name: w.Name, Heartbeat: at, Writer: w.Set[2].Value.(string)}
}

// queue returns the tickets in the table, as the next poll finds them.
func (h *hall) queue(name string) []table.Ticket {
	var rows []table.Row
	for _, row := range h.store.Rows() {
		rows = append(rows, row)
	}
	return table.Tickets(name, rows)
}

// poll makes the place learn what the table contains, as one poll of its locks does.
func (h *hall) poll(p *Place) []elect.LockView {
	c := h.config.Candidate(h.table, p.Queues...)
	c.Queue = p
	seen, err := c.Look(h.Context())
	require.NoError(h, err)
	return seen
}

// A ticket says who waits, how urgently and for how long it lasts. Operators see it, and the other waiters count on it.
func TestATicketSaysWhoWaits(t *testing.T) {
	inHall(t, func(h *hall) {
		for _, queues := range [][]string{{"a"}, {"a", "b"}} {
			p := New(&h.config, h.table, queues...)
			p.Ticket.Key, p.Ticket.Slots = "key", 7
			seen := h.poll(&p)
			require.NoError(t, p.Attend(h.Context(), "nonce", seen))
			for _, name := range queues {
				got := h.queue(name)
				require.Len(t, got, 1)
				set := len(queues) > 1
				assert.Equal(t, table.Ticket{Queue: name, Time: table.TurnFor(table.TokenAt(p.at), 2), Nonce: "nonce", ID: "own", Rank: 2, Key: "key", Slots: 7, Set: set,
					Grace: pace(&p).Grace(), Lasts: table.LastsFor(h.config.Lease, set), Beat: got[0].Beat, RoundTrip: got[0].RoundTrip, Notify: h.table.Contact(got[0].Row())}, got[0])
				assert.NotEmpty(t, got[0].Notify)
			}
			p.Forget()
			assert.Empty(t, h.queue("a"))
			assert.Empty(t, h.queue("b"))
		}
		h.config.Notifier.Close()
	}, new(outbox).notifies)
}

// An owner may have 32 requests in flight. Each write of tickets takes one of these places until it is answered, and then gives it
// back: otherwise, the owner's claims would soon wait for nothing.
func TestEachWriteOfTicketsGivesItsPlaceInTheGateBack(t *testing.T) {
	inHall(t, func(h *hall) {
		p := New(&h.config, h.table, "a")
		began := time.Now()
		for i := range 100 {
			seen := h.poll(&p)
			p.Ticket.Key = fmt.Sprint(i)
			require.NoError(t, p.Attend(h.Context(), "nonce", seen))
			require.Equal(t, p.Ticket.Key, h.queue("a")[0].Key)
		}
		assert.Zero(t, time.Since(began))
	}, func(c *options.Config) { c.Requests, c.Owner = &batch.Requests{}, "owner" })
}

// A waiter that must wait before it may write its ticket stops when its ctx ends, and does not write it: nobody would delete it.
func TestAWaiterThatEndsBeforeItsTicketIsWrittenWritesNone(t *testing.T) {
	inHall(t, func(h *hall) {
		leave := h.fillGate()
		p := New(&h.config, h.table, "a")
		seen := h.poll(&p)
		ctx, cancel := context.WithTimeout(h.Context(), time.Second/10)
		defer cancel()
		began := time.Now()
		assert.ErrorIs(t, p.Attend(ctx, "nonce", seen), context.DeadlineExceeded)
		assert.Equal(t, time.Second/10, time.Since(began))
		leave()
		time.Sleep(time.Minute)
		assert.Empty(t, h.queue("a"))
	}, func(c *options.Config) { c.Requests, c.Owner = &batch.Requests{}, "owner" })
}

// If the gate keeps a waiter from writing its ticket, the process writes the ticket after the next poll.
func TestATicketThatTheGateKeptBackIsWrittenAfterTheNextPoll(t *testing.T) {
	inHall(t, func(h *hall) {
		p := New(&h.config, h.table, "a")
		require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
		p.Ticket.Key = "later"
		leave, seen := h.fillGate(), h.poll(&p)
		ctx, cancel := context.WithTimeout(h.Context(), time.Second/10)
		defer cancel()
		require.Error(t, p.Attend(ctx, "nonce", seen))
		require.Empty(t, h.queue("a")[0].Key)
		leave()
		require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
		assert.Equal(t, "later", h.queue("a")[0].Key)
	}, func(c *options.Config) { c.Requests, c.Owner = &batch.Requests{}, "owner" })
}

// fillGate takes all places of the gate, until leave is called.
func (h *hall) fillGate() (leave func()) {
	var leaves []func()
	for {
		ctx, cancel := context.WithTimeout(h.Context(), time.Millisecond)
		one, err := h.config.Enter(ctx)
		if cancel(); err != nil {
			return func() {
				for _, one := range leaves {
					one()
				}
			}
		}
		leaves = append(leaves, one)
	}
}

// A release with goroutines of the process behind it puts a ticket at the end of each queue, for the next one: it needs no write of its
// own, and comes after the waiters of other processes that were there before the release.
func TestAReleasePutsTheNextGoroutineAtTheEndOfEachQueue(t *testing.T) {
	for _, queues := range [][]string{{"a"}, {"a", "b"}} {
		inHall(t, func(h *hall) {
			link := &memstore.Link{Store: h.store}
			link.After(func(string) { time.Sleep(50 * time.Millisecond) }) // its time is known from the reply on
			h.table.Store = link
			p := New(&h.config, h.table, queues...)
			p.Ticket.Key = "key"
			require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
			for _, name := range queues {
				h.puts(name, "other", nil)
			}
			h.poll(&p)
			time.Sleep(3 * time.Second)
			before, at := deletes(p.in(p.Queues, p.Table)), p.at.Add(3*time.Second)
			writes := p.GoToTheEnd("nonce")
			require.NoError(t, h.table.Queue(h.Context(), append(writes, before...)...))
			for _, name := range queues {
				all := h.queue(name)
				last := all[len(all)-1]
				assert.Equal(t, "nonce", last.Nonce)
				assert.Empty(t, last.Key, "it is not known what the next goroutine wants")
				assert.Equal(t, table.TurnFor(table.TokenAt(at), 2), last.Time)
				assert.Equal(t, p.Own.Grace, last.Grace)
				assert.Equal(t, pace(&p).Grace(), last.Grace)
			}
			p.Ticket.Key = ""
			seen := h.poll(&p)
			assert.Equal(t, 1, p.Ahead())
			if len(queues) == 1 {
				assert.Empty(t, p.due("nonce", seen), "nothing is left to write")
			}
		})
	}
}

// A claim is in turn only if the waiter is the first of several in each of its queues. Otherwise, it would precede claims for which
// somebody waits.
func TestASetsClaimIsInTurnOnlyIfItIsFirstInAllItsQueues(t *testing.T) {
	const alone, first, second = 0, 1, 2
	for a := range 3 {
		for b := range 3 {
			inHall(t, func(h *hall) {
				for queue, place := range map[string]int{"a": a, "b": b} {
					if place == second {
						h.puts(queue, "before", nil)
					}
				}
				p := New(&h.config, h.table, "a", "b")
				time.Sleep(time.Millisecond)
				require.NoError(t, p.Attend(h.Context(), "nonce", h.poll(&p)))
				for queue, place := range map[string]int{"a": a, "b": b} {
					if place == first {
						h.puts(queue, "after", nil)
					}
				}
				h.poll(&p)
				want := elect.Patient
				if a == first && b == first {
					want = elect.InTurn
				}
				assert.Equal(t, want, p.Urgency(), "%d %d", a, b)
				assert.Equal(t, max(a, b, 1)-1, p.Ahead())
			})
		}
	}
}

// A term's Book has the waiters of each of its locks, and no others. How long each leaves a free lock to those ahead depends on how long
// the lock was held, except for a semaphore, where each of them may take one of several slots.
func TestABookHasTheWaitersOfEachLock(t *testing.T) {
	var sent outbox
	for name, c := range map[string]struct {
		queues, locks []string
		slots         int
	}{
		"a mutex":     {[]string{"a"}, []string{"a"}, 0},
		"a set":       {[]string{"a", "b"}, []string{"a", "b"}, 0},
		"a semaphore": {[]string{"a"}, []string{"a/slot/0001"}, 2},
	} {
		inHall(t, func(h *hall) {
			p := New(&h.config, h.table, c.queues...)
			p.Ticket.Slots = c.slots
			own := h.config.Candidate(h.table, c.locks...)
			own.Queue = &p
			assert.Empty(t, p.Book(nil), "it has not polled")
			_, err := own.Look(h.Context())
			require.NoError(t, err)
			require.NoError(t, p.Attend(h.Context(), "nonce", make([]elect.LockView, len(c.queues))))
			behind, addresses := map[string][]table.Ticket{}, map[string][]netip.AddrPort{}
			for i, queue := range c.queues {
				for k := range 2 + i {
					other, at := h.putsReachable(queue, fmt.Sprint("w", k), byte(1+i), byte(k))
					behind[queue], addresses[queue] = append(behind[queue], other), append(addresses[queue], at)
				}
			}
			var term *elect.Term
			for term == nil {
				step := own.Try(h.Context(), elect.All, 0)
				require.NoError(t, step.Err)
				term = step.Term
			}
			book := p.Book(term)
			require.Len(t, book, len(c.locks))
			time.Sleep(160 * time.Millisecond)
			for i, page := range book {
				assert.Equal(t, c.locks[i], page.Name, name)
				assert.Equal(t, term.Token(), page.Token, name)
				ahead := behind[c.queues[i]]
				grace := time.Duration(float64(2*10*time.Millisecond+3*10*time.Millisecond+2*time.Second/9) * math.Log2(float64(1+len(ahead))))
				if c.slots > 0 {
					grace = time.Duration(len(ahead)) * (time.Second + 2*time.Second/9)
				}
				assert.Equal(t, grace, page.After(ahead), name)
				sent.since()
				book[i : i+1].Free(false)
				assert.Equal(t, addresses[c.queues[i]], sent.since(), name)
			}
			h.config.Notifier.Close()
		}, sent.notifies)
	}
}

// A waiter that finds a lock free notifies the first waiters ahead of it in the lock's queue, once: the release may not have notified them,
// and they may rest for a lease. It does not notify the waiters behind it.
func TestAWaiterThatFindsALockFreeTellsThoseAhead(t *testing.T) {
	for name, queues := range map[string][]string{"a mutex": {"a"}, "a set": {"a", "b"}, "a semaphore": {"s/slot/"}} {
		for ahead := range 5 {
			var messages outbox
			inHall(t, func(h *hall) {
				p, slots := New(&h.config, h.table, queues...), NewSlots("s", 1, nil)
				want, sent := map[netip.AddrPort]int{}, map[netip.AddrPort]int{}
				p.Ear = h.config.Ear()
				defer h.config.Notifier.Close()
				defer p.Ear.Close()
				for i, queue := range queues {
					for k := range ahead {
						if _, at := h.putsReachable(queue, fmt.Sprint("w", k), byte(1+i), byte(k)); k < 3 {
							want[at] = 1
						}
					}
				}
				time.Sleep(time.Millisecond)
				h.poll(&p)
				require.NoError(t, p.Attend(h.Context(), "nonce", make([]elect.LockView, len(queues))))
				for i, queue := range queues {
					h.putsReachable(queue, "w100", byte(1+i), 100)
				}
				for range 2 {
					seen := h.poll(&p)
					for i := range seen {
						seen[i].Exists, seen[i].Token, seen[i].FreeIn, seen[i].FreeFor = true, 5, 0, 0
					}
					choose := p.InOrder(elect.All)
					if name == "a semaphore" {
						choose = func(seen []elect.LockView) elect.Decision { return slots.Pick(&p, seen, seen) }
					}
					assert.Equal(t, ahead == 0, choose(seen).Claim != nil, name)
					synctest.Wait()
				}
				for _, to := range messages.since() {
					sent[to]++
				}
				assert.Equal(t, want, sent, "%s, %d ahead", name, ahead)
			}, messages.notifies)
		}
	}
}
