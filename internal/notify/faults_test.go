package notify

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// chain is a waiter at place 2 whose holder can send it anything.
type chain struct {
	*world
	holder, other *process
	e             *Ear
	seen          Seen
	began         elect.Instant
}

// chain returns a waiter behind others that has read the holder's lease row.
func (w *world) chain(holder, other *process, ahead ...table.Ticket) *chain {
	return w.chainOf(holder, other, lease, holder.held(1, ahead...))
}

// chainOf returns a waiter with a lease of its own whose first poll has shown seen.
func (w *world) chainOf(holder, other *process, lease time.Duration, seen Seen) *chain {
	seen.Ticket = other.ticket(10)
	c := &chain{world: w, holder: holder, other: other, e: other.Listen(site, lease), seen: seen}
	c.polls(1, true)
	return c
}

// sends sends the waiter a message of the holder, under the key of its lease row or of the waiter's ticket.
func (c *chain) sends(m message, ofTicket bool) {
	m.lock, m.waiter, m.from = idOf(site, "m"), c.e.self, c.holder.at
	secret := c.holder.keyOf(site, table.LeaseKey("m", 1))
	if ofTicket {
		m.flags, secret = m.flags|byTicket, c.other.keyOf(site, c.seen.Ticket.Row())
	}
	c.other.Receive(m.signed(secret), c.holder.at)
}

// last returns the sequence number of the waiter's last question.
func (c *chain) last() (seq uint64) {
	c.other.do(func() { seq = c.e.lines["m"].last })
	return seq
}

func (c *chain) polls(token table.Token, held bool) {
	c.seen.Locks[0].Token, c.seen.Locks[0].Held = token, held
	c.began = elect.SystemClock{}.Now()
	c.e.Learn(c.seen, c.began)
}

// Whatever a waiter is sent, in whatever order and whatever its polls show in between, it never sleeps longer than without
// messages while its holder answers, never polls twice within 2 ms because of them, and never leaves a free lock to the others for
// more than 30 ms, or than the grace.
func TestNoMessagesKeepAWaiterFromPolling(t *testing.T) {
	const short, long = 200 * time.Millisecond, lease
	may := []func(c *chain){
		func(c *chain) { c.sends(message{kind: heard, token: 1, seq: c.last()}, false) },
		func(c *chain) {
			c.sends(message{kind: heard, flags: handover, token: 1, seq: c.last()}, false)
		},
		func(c *chain) { c.sends(message{kind: leaving, token: 1}, false) },
		func(c *chain) { c.sends(message{kind: free, token: 1}, false) },
		func(c *chain) { c.sends(message{kind: free, token: 1, after: lease * 6 / 10}, false) },
		func(c *chain) { c.sends(message{kind: free, token: 1, after: table.MaxLease}, false) },
		func(c *chain) { c.sends(message{kind: free, token: 0}, true) },
		func(c *chain) { c.sends(message{kind: free, flags: relayed, token: 5}, true) },
		func(c *chain) { c.sends(message{kind: free, token: 7, after: time.Second / 10}, true) },
		func(c *chain) { c.sends(message{kind: taken, token: 7, ahead: 0, after: lease}, true) },
		func(c *chain) { c.sends(message{kind: taken, token: 7, ahead: 1, after: table.MaxLease}, true) },
		func(c *chain) { c.sends(message{kind: taken, token: 9, ahead: 9}, true) },
		func(c *chain) { c.polls(1, true) },
		func(c *chain) { c.polls(2, false) },
		func(c *chain) { time.Sleep(lease / 3) },
	}
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		for i := range len(may) * len(may) * len(may) {
			c := w.chain(holder, other, other.ticket(7), other.ticket(8))
			for _, k := range []int{i % len(may), i / len(may) % len(may), i / len(may) / len(may)} {
				may[k](c)
				time.Sleep(time.Millisecond)
				grace := []time.Duration{time.Millisecond, time.Second}[i%2]
				assert.LessOrEqual(t, c.e.Free("m", 2, c.seen.Locks[0].Ahead, grace), min(grace, headStart))
			}
			slept := elect.SystemClock{}.Now()
			c.e.Sleep(context.Background(), elect.SystemClock{}, short, long)
			now := elect.SystemClock{}.Now()
			assert.LessOrEqual(t, now.Since(slept), long, "%d", i)
			assert.GreaterOrEqual(t, now.Since(c.began), soonest, "%d", i)
			c.e.Close()
		}
	})
}

// A waiter that is told that a lock is free while its poll is on its way polls again at once, whatever that poll shows: the poll may
// have read the row before the release. Otherwise, the free lock would stay unused until the next normal poll.
func TestAMessageThatArrivesDuringAPollCountsWhateverThePollShows(t *testing.T) {
	messages := map[string]func(c *chain){
		"of the holder": func(c *chain) { c.sends(message{kind: free, token: 1}, false) },
		"of the next":   func(c *chain) { c.sends(message{kind: free, token: 2}, true) },
		"passed on":     func(c *chain) { c.sends(message{kind: free, flags: relayed, token: 2}, true) },
	}
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		for name, arrives := range messages {
			for token := range table.Token(3) {
				c := w.chain(holder, other, other.ticket(7))
				arrives(c)
				c.polls(1+token, true)
				c.e.Sleep(context.Background(), elect.SystemClock{}, lease, lease)
				assert.LessOrEqual(t, elect.SystemClock{}.Now().Since(c.began), soonest, "%s, and the poll shows token %d", name, 1+token)
				c.e.Close()
			}
		}
	})
}

// Of two messages that say when to poll, the earlier time counts, whichever message arrives first: a lock that is free now must not wait
// for somebody whose turn comes later.
func TestOfTwoMessagesTheEarlierTimeCounts(t *testing.T) {
	times := []time.Duration{0, soonest, 10 * time.Millisecond, lease / 4, lease/4 + 1, lease / 2, lease, 2 * lease}
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		for _, first := range times {
			for _, second := range times {
				c := w.chain(holder, other, other.ticket(7))
				c.sends(message{kind: free, token: 1, after: first}, false)
				c.sends(message{kind: free, token: 2, after: second}, true)
				assert.Equal(t, min(max(min(first, second), soonest), lease), sleeps(c.e, lease, lease), "%v, then %v", first, second)
				c.e.Close()
			}
		}
	})
}

// A waiter that the holder tells to wait for half a lease, because many are ahead, neither asks again at once nor polls, even if the
// holder's process has ended. Otherwise, all waiters would poll together.
func TestAWaiterThatIsToldToWaitNeitherAsksNorPolls(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		for _, after := range []time.Duration{lease/4 + 1, lease / 2, lease} {
			c := w.chain(holder, other, other.ticket(7))
			c.sends(message{kind: free, token: 1, after: after}, false)
			w.sent(only(waiting))
			assert.GreaterOrEqual(t, sleeps(c.e, time.Millisecond, lease), interval(lease)*9/10, "%v", after)
			assert.LessOrEqual(t, len(w.sent(only(waiting))), 1+repeats)
			c.e.Close()
		}
	})
}

// A waiter for many slots also soon ignores messages after which its polls find nothing new. Otherwise, whoever can sign messages could
// make it poll all the time.
func TestMessagesAboutOneOfManySlotsAreSoonIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		e := other.Listen(site, lease)
		seen := Seen{Ticket: other.ticket(10)}
		for i := range 8 {
			seen.Locks = append(seen.Locks, Lock{Name: fmt.Sprint(i), Token: 1, Held: true, Lease: lease})
		}
		early := 0
		for i := range 10 {
			e.Learn(seen, elect.SystemClock{}.Now())
			m := message{kind: free, flags: byTicket | relayed, lock: idOf(site, fmt.Sprint(i%8)), token: table.Token(2 + i), waiter: e.self, from: holder.at}
			other.Receive(m.signed(other.keyOf(site, seen.Ticket.Row())), holder.at)
			if sleeps(e, lease/50, lease/50) < lease/50 {
				early++
			}
		}
		assert.Equal(t, mostVain, early)
		e.Close()
	})
}

// Followers need not read the lock row often to see that their leader is about to hand over. Who knows it polls as without
// messages until there is another one.
func TestFollowersPollWhileTheirLeaderIsLeaving(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("the announcement is lost ", lost), func(t *testing.T) {
			inWorld(t, func(w *world) {
				_, book, follower, seen := pair(w)
				time.Sleep(lease * 5 / 2)
				w.loses(func(_, _ int, m message) bool { return lost && m.kind == leaving })
				book.Leaving()
				polled := follower.during(interval(lease))
				assert.GreaterOrEqual(t, polled, 1)
				if !lost {
					assert.GreaterOrEqual(t, polled, 9)
				}
				assert.GreaterOrEqual(t, follower.during(lease), 35)
				next := w.processes[0].held(3)
				seen.Store(&next)
				book.Free(false)
				book = w.processes[0].holds(3)
				time.Sleep(lease)
				assert.LessOrEqual(t, follower.during(5*lease), 6)
				book.Free(false)
			})
		})
	}
}

// Whoever finds a lock free although others are ahead tells them, once, and leaves it to them for a moment, because they may be
// asleep. Who has waited for as long as the last holder said need not: the holder has told them.
func TestWhoFindsALockFreeLeavesItToThoseAhead(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		book := holder.holds(1)
		e := other.Listen(site, lease)
		first, own := holder.ticket(7), other.ticket(10)
		seen := holder.held(1, first)
		seen.Ticket = own
		e.Learn(seen, elect.SystemClock{}.Now())
		finds := func(token table.Token) (wait time.Duration, told int) {
			wait = e.Free("m", token, []table.Ticket{first}, time.Second)
			return wait, len(w.sent(func(m message) bool { return m.kind == free && m.flags&relayed != 0 }))
		}
		wait, told := finds(2)
		assert.Equal(t, headStart, wait)
		assert.Equal(t, 1, told)
		time.Sleep(10 * time.Millisecond)
		wait, told = finds(2)
		assert.Equal(t, headStart-10*time.Millisecond, wait)
		assert.Zero(t, told)
		book.Free(false) // the waiter is told to claim at once: it is the only one that has asked
		time.Sleep(time.Millisecond)
		wait, told = finds(4)
		assert.Zero(t, wait)
		assert.Equal(t, 1, told, "but it passes it on")
		e.Close()
	})
}

// Who waits for a slot may have been told of several. If another waiter takes one, the others are still free.
func TestASlotThatAnotherHasTakenDoesNotHideTheNextOne(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		own := other.ticket(10)
		own.Slots = 2
		e := other.Listen(site, lease)
		seen := Seen{Ticket: own}
		for _, slot := range []string{"a", "b"} {
			seen.Locks = append(seen.Locks, Lock{Name: slot, Token: 1, Held: true, Contact: holder.Contact(site, table.LeaseKey(slot, 1)), Lease: lease, Ahead: []table.Ticket{holder.ticket(7)}})
		}
		e.Learn(seen, elect.SystemClock{}.Now())
		sends := func(slot string, m message) {
			m.flags, m.lock, m.waiter, m.from = byTicket, idOf(site, slot), e.self, holder.at
			other.Receive(m.signed(other.keyOf(site, own.Row())), holder.at)
		}
		time.Sleep(lease / 8)
		sends("a", message{kind: free, token: 1, after: 40 * time.Millisecond})
		sends("b", message{kind: free, token: 1, after: 60 * time.Millisecond})
		sends("a", message{kind: taken, token: 3, ahead: 1, after: lease})
		assert.LessOrEqual(t, sleeps(e, 100*time.Millisecond, lease), 60*time.Millisecond)
		e.Close()
	})
}

// Another process has the address of one that has died, as on a port that is used again. It knows none of its keys, so it neither
// answers nor hears what was meant for it.
func TestAnAddressThatIsUsedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, _ := pair(w)
		time.Sleep(lease)
		w.loses(func(from, to int, _ message) bool { return from == holder.i || to == holder.i })
		heir := w.process()
		w.mu.Lock()
		heir.at = holder.at
		w.mu.Unlock()
		heir.do(func() { heir.own = holder.at })
		own := heir.holds(3)
		time.Sleep(lease)
		assert.GreaterOrEqual(t, waiter.during(lease), 35)
		heir.do(func() { assert.Zero(t, heir.fates["valid"]); assert.Positive(t, heir.fates["unknown"]) })
		own.Free(false)
		book.Free(false)
	})
}

// A waiter for a few slots sleeps while their holders answer. One for several locks must see all the time whether it is first for
// all of them, and one for many slots would have to ask too many holders: these poll as without messages.
func TestWhoSleepsOnlyIfFewAreToBeAsked(t *testing.T) {
	for name, c := range map[string]struct {
		locks int
		set   bool
		slow  bool
	}{"a few slots": {mostAsked, false, true}, "many slots": {mostAsked + 1, false, false}, "a set": {2, true, false}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder, other := w.process(), w.process()
				seen := Seen{Ticket: other.ticket(10)}
				seen.Ticket.Set = c.set
				var books []Book
				for i := range c.locks {
					slot := fmt.Sprint("slot ", i)
					books = append(books, holder.Hold(termOf(slot)))
					seen.Locks = append(seen.Locks, Lock{Name: slot, Token: 1, Held: true, Contact: holder.Contact(site, table.LeaseKey(slot, 1)), Lease: lease})
				}
				e := other.Listen(site, lease)
				e.Learn(seen, elect.SystemClock{}.Now())
				assert.Equal(t, c.slow, sleeps(e, 100*time.Millisecond, lease) == lease)
				e.Close()
				for _, b := range books {
					b.Free(false)
				}
			})
		})
	}
}
