package notify

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// How often a waiter asks depends on its place, and not on how often it polls. The next in line asks every 0.4 s, because it must
// soon find out that the holder has died. All others ask once a second, or the holder would have to answer too often.
func TestHowOftenAWaiterAsksDependsOnItsPlace(t *testing.T) {
	const first, others = lease / 10, lease / 4
	for name, c := range map[string]struct {
		follower, ahead, alive bool // a ticket is ahead; its waiter asks, too
		every                  time.Duration
	}{
		"the first in the queue":        {every: first},
		"behind a waiter":               {ahead: true, alive: true, every: others},
		"behind a waiter that has died": {ahead: true, every: first},
		"the only follower":             {follower: true, every: first},
		"a follower of lower rank":      {follower: true, alive: true, every: others},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder, before, p := w.process(), w.process(), w.process()
				book := holder.holds(1)
				own, other := table.Ticket{}, before.ticket(7)
				seen := holder.held(1)
				if seen.Follower = c.follower; !c.follower {
					own = p.ticket(10)
				}
				seen.Ticket = own
				if c.ahead {
					seen.Locks[0].Ahead = []table.Ticket{other}
				}
				e := p.Listen(site, lease)
				first := before.Listen(site, lease)
				if c.follower {
					e.nonce, first.nonce = 8, 7
				}
				asked := func(d time.Duration) (n int) {
					for range d / (50 * time.Millisecond) {
						e.Learn(seen, elect.SystemClock{}.Now())
						if c.alive {
							s := seen
							s.Ticket, s.Locks = other, []Lock{seen.Locks[0]}
							if s.Locks[0].Ahead = nil; c.follower {
								s.Ticket = table.Ticket{}
							}
							first.Learn(s, elect.SystemClock{}.Now())
						}
						time.Sleep(50 * time.Millisecond)
					}
					for _, m := range w.sent(only(waiting)) {
						if m.waiter == e.self {
							n++
						}
					}
					return n
				}
				asked(2 * lease)
				n := asked(10 * lease)
				assert.GreaterOrEqual(t, n, int(10*lease/c.every)-1)
				assert.LessOrEqual(t, n, int(10*lease*10/9/c.every)+1)
				e.Close()
				first.Close()
				book.Free(false)
			})
		})
	}
}

// A process whose waiters all ask at once is answered by each holder: the limit on messages that nobody asked for does not apply to
// questions and answers. Otherwise, the waiters of a large process would poll although their holders are alive.
func TestManyWaitersOfOneProcessAreAllAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		const locks, each = 8, mostTold - 4
		holder, p := w.process(), w.process()
		for i := range locks {
			name := fmt.Sprint("lock ", i)
			book := holder.Hold(termOf(name))
			defer book.Free(false)
			for range each {
				e := p.Listen(site, lease)
				e.Learn(Seen{Follower: true, Locks: []Lock{{Name: name, Token: 1, Held: true, Contact: holder.Contact(site, table.LeaseKey(name, 1)), Lease: lease}}}, elect.SystemClock{}.Now())
				defer e.Close()
			}
		}
		time.Sleep(3 * time.Millisecond)
		answered := map[waiter]bool{}
		for _, m := range w.sent(only(heard)) {
			answered[m.waiter] = true
		}
		assert.Len(t, answered, locks*each)
		time.Sleep(time.Second)
	})
}

// A question says who asks, for what, and in which order it wants to be told. A set that is not first in all its queues says so,
// and one that is first does not: otherwise, the holder would tell others to go first.
func TestAQuestionSaysWhoAsks(t *testing.T) {
	for _, c := range []struct {
		follower, set, ready bool
		flags                flags
	}{
		{follower: true, flags: toHolder},
		{flags: toHolder},
		{set: true, flags: toHolder | unready},
		{set: true, ready: true, flags: toHolder},
		{ready: true, flags: toHolder},
	} {
		inWorld(t, func(w *world) {
			holder, p := w.process(), w.process()
			book := holder.holds(5)
			e := p.Listen(site, lease)
			seen := holder.held(5)
			seen.Rank, seen.Trip, seen.Follower = 3, 7*time.Millisecond, c.follower
			self := waiter{nonce: e.nonce}
			if !c.follower {
				seen.Ticket = p.ticket(10)
				seen.Ticket.Set, seen.Ticket.Ready = c.set, c.ready
				self = mustWaiter(t, seen.Ticket)
			}
			e.Learn(seen, elect.SystemClock{}.Now())
			asked := w.sent(only(waiting))
			require.Len(t, asked, 1)
			seq := asked[0].seq
			assert.Equal(t, message{kind: waiting, flags: c.flags, lock: idOf(site, "m"), token: 5, seq: seq, waiter: self, rank: 3, trip: 7 * time.Millisecond, from: p.at}, asked[0])
			time.Sleep(2 * time.Millisecond)
			holder.do(func() {
				require.Contains(t, book[0].entries, self)
				got := book[0].entries[self]
				assert.Equal(t, c.set && !c.ready, got.set)
				assert.EqualValues(t, 3, got.rank)
				assert.Equal(t, 7*time.Millisecond, got.ticket.RoundTrip)
				assert.Equal(t, p.at, got.contact.at)
				assert.Equal(t, seq, got.seq)
			})
			e.Close()
			left := w.sent(only(gone))
			require.NotEmpty(t, left)
			assert.Equal(t, self, left[0].waiter)
			assert.Equal(t, seq, left[0].seq, "so that it is not older than the question, and not newer than the next waiter's")
			book.Free(false)
		})
	}
}

// A newcomer asks nobody before it has a ticket: a holder could not tell it from other newcomers, and would count all of them as one.
// A waiter also stops asking about a lock that it does not poll any more.
func TestAWaiterAsksOnlyUnderItsNameAndOnlyAboutWhatItPolls(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, p := w.process(), w.process()
		book := holder.holds(1)
		e := p.Listen(site, lease)
		seen := holder.held(1)
		e.Learn(seen, elect.SystemClock{}.Now())
		time.Sleep(lease)
		assert.Empty(t, w.sent(only(waiting)))
		seen.Ticket = p.ticket(10)
		e.Learn(seen, elect.SystemClock{}.Now())
		time.Sleep(lease)
		assert.NotEmpty(t, w.sent(only(waiting)))
		other := seen
		other.Locks = []Lock{{Name: "another", Token: 1}}
		e.Learn(other, elect.SystemClock{}.Now())
		w.sent(only(waiting))
		time.Sleep(lease)
		assert.Empty(t, w.sent(only(waiting)))
		p.do(func() { assert.Len(t, p.talkers, 1); assert.Len(t, e.lines, 1) })
		e.Close()
		p.do(func() { assert.Empty(t, p.talkers) })
		book.Free(false)
	})
}

// Only an answer to the open question, or to one of its repeats, shows that the holder is alive. If an older one counted, a holder
// that has died would seem alive for longer, and a waiter would notice its death too late.
func TestOnlyAnAnswerToTheOpenQuestionCounts(t *testing.T) {
	for name, c := range map[string]struct {
		token  table.Token
		seq    func(first, last uint64) uint64 // of the question, and of its last repeat
		ticket bool
		counts bool
	}{
		"the question":             {1, func(first, _ uint64) uint64 { return first }, false, true},
		"its last repeat":          {1, func(_, last uint64) uint64 { return last }, false, true},
		"a question before it":     {1, func(first, _ uint64) uint64 { return first - 1 }, false, false},
		"one that was not asked":   {1, func(_, last uint64) uint64 { return last + 1 }, false, false},
		"one under another token":  {2, func(_, last uint64) uint64 { return last }, true, false},
		"one under an older token": {0, func(_, last uint64) uint64 { return last }, true, false},
	} {
		inWorld(t, func(w *world) {
			w.loses(func(int, int, message) bool { return true })
			h := w.chain(w.process(), w.process())
			time.Sleep(6 * time.Millisecond)
			synctest.Wait()
			var first, last uint64
			h.other.do(func() { first, last = h.e.lines["m"].first, h.e.lines["m"].last })
			require.Less(t, first, last, "it has repeated its question")
			h.sends(message{kind: heard, token: c.token, seq: c.seq(first, last)}, c.ticket)
			h.other.do(func() {
				assert.Equal(t, c.counts, h.e.slow(), name)
				assert.Equal(t, name == "the question", h.e.lines["m"].trip > 0, "%s: when a repeat arrived is not known", name)
			})
			h.e.Close()
		})
	}
}

// The goroutines of a process hand on their ticket, and each may have a Notifier of its own. The holder answers the next one, and a late message
// from the last one is not about it. Otherwise, the next waiter would poll for a holder that seems silent, or would not be told of the release.
func TestAWaiterIsAnsweredWhateverTheLastOneWithItsTicketSaid(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.loses(func(_, _ int, m message) bool { return lost && m.kind == gone })
			holder, last, next := w.process(), w.process(), w.process()
			book := holder.holds(1)
			c := w.chain(holder, last)
			time.Sleep(5 * lease)
			c.e.Close()
			d := w.chain(holder, next)
			require.Equal(t, c.e.self, d.e.self)
			for range 8 {
				time.Sleep(interval(lease) / 4)
				next.do(func() { assert.True(t, d.e.slow()) })
				holder.do(func() { assert.Contains(t, book[0].entries, d.e.self) })
			}
			d.e.Close()
			book.Free(false)
		})
	}
}

// However short the pause of a waiter whose holder answers is meant to be, it never polls sooner than without messages: until a lock
// can be free, there is nothing to see.
func TestAWaiterWhoseHolderAnswersNeverPollsSooner(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, p := w.process(), w.process()
		book := holder.holds(1)
		e := p.Listen(site, lease)
		seen := holder.held(1)
		seen.Ticket = p.ticket(10)
		for _, c := range []struct{ short, long, slept time.Duration }{{300, 200, 300}, {300, 300, 300}, {300, 400, 400}, {300, 0, 300}, {300, -1, 300}} {
			e.Learn(seen, elect.SystemClock{}.Now())
			time.Sleep(100 * time.Millisecond)
			assert.Equal(t, c.slept*time.Millisecond, sleeps(e, c.short*time.Millisecond, c.long*time.Millisecond))
		}
		e.Close()
		book.Free(false)
	})
}

// A waiter polls as soon as a dead holder has left its questions unanswered. It asks as often as the shorter of its own lease and the
// holder's requires, whether it has read the holder's lease row or knows the holder only from a message. If it relied on an old answer,
// or on the previous holder's lease, a dead holder's lock would stay unused.
func TestAWaiterSoonNoticesThatItsHolderIsSilent(t *testing.T) {
	leases := []time.Duration{lease / 10, lease, 10 * lease, 1000 * lease}
	for _, now := range leases {
		for _, before := range append(leases, 0) { // 0: it has read the holder's lease row
			inWorld(t, func(w *world) {
				holder, other := w.process(), w.process()
				book := holder.holds(1)
				seen := holder.held(1, other.ticket(7))
				seen.Locks[0].Lease = cmp.Or(before, now)
				c := w.chainOf(holder, other, 100*lease, seen)
				time.Sleep(time.Second / 50)
				w.loses(func(from, _ int, _ message) bool { return from == holder.i })
				every := interval(min(now, 100*lease))
				patience := max(every/4, 50*time.Millisecond)
				least := min(every, max(250*time.Millisecond, now/10)) / 2 // for it is next in line
				if before != 0 {
					c.sends(message{kind: taken, token: 2, ahead: 1, after: now}, true)
					least = every / 2
				}
				w.sent(only(waiting))
				slept := sleeps(c.e, 0, 1000*lease)
				assert.Len(t, w.sent(only(waiting)), 1+repeats)
				assert.GreaterOrEqual(t, slept, least, "leases of %v and %v", before, now)
				assert.LessOrEqual(t, slept, every+patience, "leases of %v and %v", before, now)
				assert.LessOrEqual(t, elect.SystemClock{}.Now().Since(c.e.lines["m"].asked), patience, "leases of %v and %v", before, now)
				w.loses(nil)
				c.e.Close()
				book.Free(false)
			})
		}
	}
}

// An answer says how many waiters ahead are alive and could use the lock, and whether the lock is free or about to be handed over. The
// holder answers even a waiter for whom there is no room in the Book. With a wrong answer, a waiter would ask too seldom, sleep through a
// handover, or leave a free lock to nobody.
func TestAnAnswerSaysWhoIsAheadAndWhatComesNext(t *testing.T) {
	const leaves, isOver, mute, states = 0, 1, 2, 4 // or nothing
	inWorld(t, func(w *world) {
		holder, from := w.process(), w.process().at
		r := rand.New(rand.NewPCG(1, 1))
		for round := range 80 {
			book := holder.holds(table.Token(1 + round))
			state, full, place, ahead := r.IntN(states), r.IntN(2) == 0, r.IntN(14), uint32(0)
			silent := state == mute || state == leaves && r.IntN(3) == 0 // a holder that may lose its lock before it hands it over
			says := func(k kind, time int, seq uint64, f flags) message {
				return holder.hears(book[0], message{kind: k, flags: f, seq: seq, waiter: waiter{table.Token(1 + time), 1}, from: from})
			}
			asks := func(time int, seq uint64, f flags) message { return says(waiting, time, seq, f) }
			lately := func(i int) bool { return i%3 != round%3 }
			for i := range 14 {
				if !lately(i) {
					asks(i, 1, 0)
				}
			}
			time.Sleep(2 * interval(lease))
			for i := range 14 {
				if lately(i) && i != place {
					var f flags
					if r.IntN(3) == 0 {
						f = unready
					} else if i < place {
						ahead++
					}
					asks(i, 1, f^unready) // the last question counts
					asks(i, 2, f)
				}
			}
			others := 0
			if full {
				says(gone, place, 2, 0)
				others = mostNoted
			}
			holder.do(func() {
				book[0].Alive = func() bool { return !silent }
				holder.noted += others
			})
			switch state {
			case leaves:
				book.Leaving()
			case isOver:
				book.Free(false)
			}
			w.sent(only(waiting))
			m := asks(place, 3, 0)
			said := w.sent(func(m message) bool { return m.waiter.time == table.Token(1+place) && m.seq == 3 })
			holder.noted -= others
			if silent {
				assert.Empty(t, said)
			} else if assert.Len(t, said, 1) {
				want := message{kind: heard, lock: m.lock, token: m.token, seq: 3, waiter: m.waiter, ahead: ahead, from: holder.at}
				switch state {
				case leaves:
					want.flags = handover
				case isOver:
					want.kind = free
					if ahead >= mostFirst {
						assert.InDelta(t, lease*6/10, said[0].after, float64(lease*12/100))
						want.after = said[0].after
					}
				}
				assert.Equal(t, want, said[0], "round %d, state %d, full %v", round, state, full)
			}
			book.Free(false)
			time.Sleep(3 * lease)
		}
	})
}

// A waiter in the queue comes before all followers of an elector, as it does when the lock is freed. If an answer counted the
// followers, the first in the queue would leave the free lock to them.
func TestFollowersAreNotAheadOfTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, from := w.process(), w.process().at
		book := holder.holds(1)
		queued, seq := waiter{time: 7, nonce: 1}, uint64(0)
		asks := func(who waiter) message {
			seq++
			w.sent(only(waiting))
			holder.hears(book[0], message{kind: waiting, seq: seq, waiter: who, from: from})
			said := w.sent(func(m message) bool { return m.waiter == who && m.seq == seq })
			require.Len(t, said, 1)
			return said[0]
		}
		assert.Zero(t, asks(queued).ahead)
		for i := range mostFirst {
			assert.EqualValues(t, 1+i, asks(waiter{nonce: uint64(2 + i)}).ahead, "the queue, and the followers before")
		}
		assert.Zero(t, asks(queued).ahead)
		book.Free(false)
		said := asks(queued)
		assert.Equal(t, free, said.kind)
		assert.Zero(t, said.ahead)
		assert.Zero(t, said.after)
	})
}

// lateClock keeps the functions of its timers. A test can run them even after a timer was stopped, as if they had begun before.
type lateClock struct {
	elect.SystemClock
	began *[]func()
}

func (c lateClock) AfterFunc(d time.Duration, f func()) *time.Timer {
	*c.began = append(*c.began, f)
	return c.SystemClock.AfterFunc(d, f)
}

// A timer that runs out just when it is replaced or stopped does nothing: the waiter would otherwise ask about a lock that it has left, or
// give up a holder that has just answered.
func TestATimerThatIsReplacedAsItRunsOutDoesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		var began []func()
		other.clock = lateClock{began: &began}
		book := holder.holds(1)
		c := w.chain(holder, other)
		for range 20 {
			time.Sleep(lease / 20)
			w.sent(only(waiting))
			for _, f := range began[:len(began)-1] {
				f()
			}
			assert.Empty(t, w.sent(only(waiting)))
			other.do(func() { assert.True(t, c.e.slow()) })
		}
		c.e.Close()
		w.sent(only(waiting))
		for _, f := range began {
			f()
		}
		assert.Empty(t, w.sent(only(waiting)))
		book.Free(false)
	})
}
