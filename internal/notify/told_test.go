package notify

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// The process that frees a lock tells waiters in order until three who have asked lately know it, or eight know it; sets that can't use it
// are told too, but nobody leaves it to them. When a key is done, all are told at once. If too few were told, a free lock would stay
// unused. If too many were, each release would cost as many polls as there are waiters.
func TestWhoIsToldThatALockIsFree(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		r := rand.New(rand.NewPCG(1, 1))
		for round := range 200 {
			tickets := other.tickets(r, r.IntN(14), 4)
			shuffled := slices.Clone(tickets)
			r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			book := holder.holds(table.Token(1+round), shuffled...)
			often, done := r.IntN(3), r.IntN(4) == 0
			want := map[table.Token]time.Duration{}
			ahead, heard, enoughKnow := 0, 0, false
			for i, one := range tickets {
				asks := r.IntN(3) < often
				holder.do(func() {
					e := book[0].entries[mustWaiter(t, one)]
					if asks {
						e.asked = elect.SystemClock{}.Now()
					}
				})
				if enoughKnow && !done {
					continue
				}
				want[one.Time] = 0
				if !done {
					want[one.Time] = time.Duration(ahead) * 50 * time.Millisecond
				}
				if one.Set && !one.Ready {
					continue
				}
				ahead++
				if asks {
					heard++
				}
				enoughKnow = heard >= 3 || i >= 7
			}
			w.sent(func(message) bool { return false })
			book.Free(done)
			time.Sleep(10 * time.Millisecond)
			got, copies := map[table.Token]time.Duration{}, map[table.Token]int{}
			for _, m := range w.sent(only(free)) {
				require.Equal(t, table.Token(1+round), m.token)
				got[m.waiter.time] = m.after
				copies[m.waiter.time]++
			}
			assert.Equal(t, want, got, "round %d", round)
			for at, n := range copies {
				assert.Equal(t, 2, n, "a copy for a message that may be lost: round %d, waiter %d", round, at)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

func mustWaiter(t *testing.T, ticket table.Ticket) waiter {
	w, ok := waiterOf(ticket)
	require.True(t, ok)
	return w
}

// follows returns an Ear of a follower that has asked the holder under token 1.
func (p *process) follows(holder *process, rank int, trip time.Duration) *Ear {
	e := p.Listen(site, lease)
	e.Learn(holder.leads(rank, trip), elect.SystemClock{}.Now())
	return e
}

// leads returns what a follower's poll shows of a leader under token 1, and what the follower says of itself.
func (p *process) leads(rank int, trip time.Duration) Seen {
	seen := p.held(1)
	seen.Follower, seen.Rank, seen.Trip = true, rank, trip
	return seen
}

// All followers of a leader that stops are told: those of high priority first, then the fastest. Each leaves the lock to those
// before it for as long as the slowest of them takes, and many of them spread over half a lease. None is slow enough to keep the others
// waiting for more than a few times the longest grace.
func TestFollowersAreToldByRankAndSpeed(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		book := holder.Hold(termOf("m"))
		type follower struct {
			rank int
			trip time.Duration
		}
		order := []follower{{0, 30 * time.Millisecond}, {0, time.Hour}, {1, 2 * time.Millisecond}, {1, 5 * time.Millisecond}, {2, time.Millisecond}, {2, time.Second}, {9, 0}}
		by := map[uint64]follower{}
		for _, k := range []int{3, 6, 0, 5, 2, 1, 4} {
			e := w.process().follows(holder, order[k].rank, order[k].trip)
			by[e.nonce] = order[k]
			defer e.Close()
		}
		time.Sleep(time.Millisecond * 2)
		w.sent(func(message) bool { return false })
		book.Leaving()
		time.Sleep(10 * time.Millisecond)
		told := map[uint64]int{}
		for _, m := range w.sent(only(leaving)) {
			told[m.waiter.nonce]++
		}
		for nonce, f := range by {
			assert.Equal(t, 2, told[nonce], "%v learns of the handover before it happens, even if one message is lost", f)
		}
		book.Free(false)
		all := w.sent(only(free))
		require.Len(t, all, len(order))
		for k, m := range all {
			assert.Equal(t, order[k], by[m.waiter.nonce], "place %d", k)
			switch {
			case k == 0:
				assert.Zero(t, m.after)
			case k == 1:
				assert.Equal(t, 4*30*time.Millisecond, m.after)
			case k < mostRanked:
				assert.Equal(t, time.Duration(k)*4*table.MaxGrace, m.after)
			default:
				assert.Greater(t, m.after, lease/4)
				assert.LessOrEqual(t, m.after, lease/2+1)
			}
		}
	})
}

// Followers that have died delay no living follower when the lock is released, whatever the ranks, and do not fill the leader's book.
func TestFollowersThatDiedDelayNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		book := holder.Hold(termOf("m"))
		for i := range uint64(mostTold) {
			holder.hears(book[0], message{kind: waiting, seq: 1, waiter: waiter{nonce: 1 + i}, from: w.process().at})
			if i == mostTold/2 {
				time.Sleep(2 * interval(lease))
			}
		}
		time.Sleep(2 * interval(lease))
		e := w.process().follows(holder, 5, time.Millisecond)
		defer e.Close()
		time.Sleep(2 * time.Millisecond)
		assert.Len(t, book[0].entries, 1)
		for i := range uint64(mostRanked) {
			holder.hears(book[0], message{kind: waiting, seq: 2, waiter: waiter{nonce: 1 + i}, from: w.process().at})
		}
		time.Sleep(2 * interval(lease))
		w.sent(func(message) bool { return false })
		book.Free(false)
		all := w.sent(only(free))
		require.NotEmpty(t, all)
		assert.Equal(t, e.nonce, all[0].waiter.nonce)
		assert.Zero(t, all[0].after)
	})
}

// A waiter is told at the address that it announces and, only if the holder sees another one, there as well. The answer goes to the address
// that the holder sees. A socket for IPv6 shows an IPv4 address in another form, which is no other address: all messages would be sent twice.
func TestAWaiterIsToldAtEachOfItsAddresses(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, sent := w.process(), map[kind]map[string]int{}
		holder.send = func(b []byte, to netip.AddrPort) {
			w.mu.Lock()
			defer w.mu.Unlock()
			m, _ := decode(b)
			sent[m.kind][to.String()]++
		}
		token := table.Token(0)
		for from, sees := range map[string]string{"10.0.0.9:7700": "10.0.0.9:7700", "[::ffff:10.0.0.9]:7700": "10.0.0.9:7700", "10.0.0.9:7701": "10.0.0.9:7701",
			"[::ffff:10.0.0.8]:7700": "10.0.0.8:7700", "[fd00::9]:7700": "[fd00::9]:7700"} {
			token++
			book := holder.holds(token)
			sent[heard], sent[free] = map[string]int{}, map[string]int{}
			m := message{kind: waiting, flags: toHolder, lock: book[0].lock, token: token, seq: 1, waiter: waiter{10, 1}, from: netip.MustParseAddrPort("10.0.0.9:7700")}
			holder.Receive(m.signed(book[0].key), netip.MustParseAddrPort(from))
			book.Free(false)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, map[string]int{sees: 1}, sent[heard], from)
			assert.Equal(t, map[string]int{"10.0.0.9:7700": 2, sees: 2}, sent[free], from)
		}
	})
}

// A process notes 64 waiters for a lock, and 4,096 in all. It answers the others, but they can't make it need more memory. Those
// who leave, and terms that are over, make room.
func TestAProcessNotesSoManyWaitersAndNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		asks := func(b *page, nonce uint64, k kind) {
			p.hears(b, message{kind: k, seq: nonce, waiter: waiter{nonce: nonce}, from: w.processes[0].at})
		}
		one := p.holds(1)
		for i := range uint64(mostTold + 10) {
			asks(one[0], 1+i, waiting)
		}
		assert.Len(t, one[0].entries, mostTold)
		asks(one[0], 1, gone)
		asks(one[0], 1000, waiting)
		asks(one[0], 1001, waiting)
		assert.Len(t, one[0].entries, mostTold)
		assert.Contains(t, one[0].entries, waiter{nonce: 1000})

		var terms []Term
		for i := range mostNoted / mostTold {
			terms = append(terms, termOf(fmt.Sprint("lock ", i)))
		}
		others := p.Hold(terms...)
		for _, b := range others {
			for i := range uint64(mostTold) {
				asks(b, 1+i, waiting)
			}
		}
		last := others[len(others)-1]
		assert.Equal(t, mostNoted, p.noted)
		assert.Empty(t, last.entries)
		one.Free(false)
		asks(last, 1, waiting)
		assert.Len(t, last.entries, 1)
		others.Free(false)
		assert.Zero(t, p.noted)
	})
}

// A term that is over answers those who still ask about it. To everything else it is silent: a waiter that has gone needs no message.
func TestATermThatIsOverAnswersOnlyQuestions(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		book := holder.holds(1)
		book.Free(false)
		for k := waiting; k < kinds; k++ {
			w.sent(func(message) bool { return false })
			m := holder.hears(book[0], message{kind: k, seq: 7, waiter: waiter{10, 1}, from: w.process().at})
			said := w.sent(func(message) bool { return true })
			if k != waiting {
				assert.Empty(t, said, "kind %d", k)
				continue
			}
			require.Len(t, said, 1)
			assert.Equal(t, free, said[0].kind)
			assert.Equal(t, m.waiter, said[0].waiter)
			assert.Equal(t, m.seq, said[0].seq)
		}
	})
}

// A waiter that finds a lock free does not tell those ahead if this process itself was the last holder, because it has told them. After
// any other release it does: they would sleep on otherwise.
func TestOnlyTheLastHolderNeedNotPassOnThatALockIsFree(t *testing.T) {
	inWorld(t, func(w *world) {
		first, p := w.process(), w.process()
		ahead := []table.Ticket{first.ticket(7), first.ticket(8), first.ticket(9), first.ticket(10)}
		e := p.Listen(site, lease)
		finds := func(lock string, token table.Token) int {
			w.sent(func(message) bool { return false })
			assert.Equal(t, headStart, e.Free(lock, token, ahead, time.Second), "whoever has told them")
			said := w.sent(func(m message) bool { return m.kind == free && m.flags&relayed != 0 && m.token == token })
			for i, m := range said {
				assert.Equal(t, mustWaiter(t, ahead[i]), m.waiter)
			}
			return len(said)
		}
		before, now := p.holds(1), p.holds(5)
		before.Free(false)
		assert.Zero(t, finds("m", 2), "it has freed the lock itself")
		assert.Equal(t, relays, finds("m", 4), "another process has held it since")
		assert.Zero(t, finds("m", 4), "once for each token")
		assert.Equal(t, relays, finds("m", 6), "its own term did not end with a release")
		assert.Equal(t, relays, finds("another", 2), "it has freed another lock")
		now.Free(false)
		e.Close()
	})
}

// A closed Notifier sends nothing more, and its waiters don't rely on it: from then on, they poll as without it. Otherwise, a waiter
// would sleep for a lease after the last message that it can hear.
func TestAfterCloseAProcessIsSilentAndItsWaitersPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		_, book, l, _ := pair(w)
		time.Sleep(lease * 5 / 2)
		another := termOf("another")
		another.Waiters = []table.Ticket{w.processes[0].ticket(7)}
		own := l.p.Hold(another)
		l.p.Close()
		assert.GreaterOrEqual(t, l.during(110*time.Millisecond), 1, "at once")
		assert.GreaterOrEqual(t, l.during(lease), 35)
		w.sent(func(message) bool { return false })
		own.Leaving()
		own.Free(false)
		l.stop()
		time.Sleep(lease)
		assert.Empty(t, w.sent(func(m message) bool { return m.from == l.p.at }))
		book.Free(false)
	})
}

// A waiter that is told of many releases and finds that each was one goes on listening, however often the lock changes hands. If
// such polls counted as in vain, a busy queue would soon fall back to polling.
func TestAWaiterThatIsToldTheTruthGoesOnListening(t *testing.T) {
	for _, held := range []bool{true, false} {
		inWorld(t, func(w *world) {
			holder, other := w.process(), w.process()
			c := w.chain(holder, other, other.ticket(7))
			for token := table.Token(1); token < 40; token += 2 {
				time.Sleep(10 * time.Millisecond)
				c.sends(message{kind: free, token: token}, true)
				assert.LessOrEqual(t, sleeps(c.e, lease, lease), soonest, "token %d", token)
				c.polls(token+1, false)
				if held {
					c.polls(token+2, true)
				}
			}
			c.e.Close()
		})
	}
}

// The process that takes a lock tells each waiter how many are ahead of it, not counting sets: sets keep polling, and need no message. If
// sets counted, the first waiter behind them would not know that it is next.
func TestWaitersLearnHowManyAreAheadWhenALockIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		r := rand.New(rand.NewPCG(1, 1))
		for round := range 100 {
			type place struct {
				waiter
				ahead uint32
			}
			tickets := other.tickets(r, r.IntN(table.MostTickets+5), 3)
			var want, got []place
			for i, one := range tickets {
				if !one.Set && i < table.MostTickets {
					want = append(want, place{mustWaiter(t, one), uint32(len(want))})
				}
			}
			book := holder.holds(table.Token(1+round), tickets...)
			for _, m := range w.sent(only(taken)) {
				assert.Equal(t, lease, m.after)
				got = append(got, place{m.waiter, m.ahead})
			}
			assert.Equal(t, want, got, "round %d", round)
			book.Free(false)
			time.Sleep(time.Second)
		}
	})
}

// A waiter that the holder told when to poll leaves the lock to those ahead until then, and not afterwards. A waiter that the holder did
// not tell leaves it to them at any time, because only the holder knows whom it has told. Otherwise, a waiter that polls early for
// another reason would claim the lock out of turn, or a waiter whose turn has come would leave the lock unused.
func TestAWaiterLeavesTheLockToThoseAheadUntilItsTurn(t *testing.T) {
	const turn = 80 * time.Millisecond
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		ahead := []table.Ticket{holder.ticket(7)}
		for what, m := range map[string]message{"its holder": {kind: free, token: 1, after: turn}, "a waiter": {kind: free, flags: relayed, token: 1, after: turn}, "nobody": {}} {
			for _, at := range []time.Duration{0, turn / 2, turn - 1, turn, turn + 1, 2 * turn} {
				c := w.chain(holder, other, ahead...)
				if m.kind != 0 {
					c.sends(m, false)
				}
				time.Sleep(at)
				want := headStart
				if what == "its holder" && at >= turn {
					want = 0
				}
				assert.Equal(t, want, c.e.Free("m", 2, ahead, time.Second), "told by %s, after %v", what, at)
				c.e.Close()
			}
		}
	})
}

// A leader ranks a follower by what the follower last said of itself: if its polls have become fast, or its priority has changed, the
// leader tells it in its new place.
func TestWhatAFollowerLastSaidCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		book := holder.Hold(termOf("m"))
		e := w.process().follows(holder, 3, 50*time.Millisecond)
		for _, now := range []Seen{{Rank: 1, Trip: time.Millisecond}, {Rank: 5, Trip: time.Second}} {
			e.Learn(holder.leads(now.Rank, now.Trip), elect.SystemClock{}.Now())
			time.Sleep(lease)
			holder.do(func() {
				got := book[0].entries[e.self]
				assert.EqualValues(t, now.Rank, got.rank)
				assert.Equal(t, now.Trip, got.ticket.RoundTrip)
			})
		}
		e.Close()
		book.Free(false)
	})
}
