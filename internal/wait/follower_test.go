package wait

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// talk has two processes that notify each other: a holder that answers, and a waiter.
type talk struct {
	config options.Config         // the waiter's
	view   elect.LockView         // what its polls show
	asked  atomic.Pointer[[]byte] // its last message
	sent   atomic.Int64           // how many it has sent
}

func talking(t *testing.T, lease time.Duration, test func(*talk)) {
	synctest.Test(t, func(t *testing.T) {
		var own, holder *notify.Notifier
		at, to, c := netip.MustParseAddrPort("10.0.0.1:7700"), netip.MustParseAddrPort("10.0.0.2:7700"), &talk{}
		own = notify.New(at, elect.SystemClock{}, func(b []byte, _ netip.AddrPort) {
			c.asked.Store(&b)
			c.sent.Add(1)
			time.AfterFunc(time.Millisecond, func() { holder.Receive(b, at) })
		})
		holder = notify.New(to, elect.SystemClock{}, func(b []byte, _ netip.AddrPort) {
			time.AfterFunc(time.Millisecond, func() { own.Receive(b, to) })
		})
		book := holder.Hold(notify.Term{Name: "e", Token: 1, Lease: lease, Alive: func() bool { return true }})
		c.config.Lease, c.config.Clock, c.config.Notifier, c.config.Rank = lease, elect.SystemClock{}, own, 2
		record := &table.LeaseRecord{Lease: lease, Notify: holder.Contact("", table.LeaseKey("e", 1))}
		c.view = elect.LockView{Observation: table.Observation{Name: "e", Token: 1, LeaseRecord: record}, FreeIn: time.Second}
		test(c)
		own.Close()
		book.Free(false)
		holder.Close()
	})
}

// rest returns how long a follower rests after a step. The argument last is the token of its own last term.
func (c *talk) rest(step elect.Step, last table.Token) time.Duration {
	f := Follower{Config: &c.config, Ear: c.config.Ear()}
	began := time.Now()
	f.Rest(context.Background(), step, c.config.Clock.Now(), last)
	f.Ear.Close()
	return time.Since(began)
}

// rests returns how long a follower rests after a step, and the rank in its last question.
func (c *talk) rests(step elect.Step) (time.Duration, byte) {
	step.Seen, step.Latest = []elect.LockView{c.view}, time.Hour
	rest := c.rest(step, 0)
	return rest, (*c.asked.Load())[3]
}

// A follower whose leader answers polls once in nine tenths of a lease, so that Seen and Wait keep what they promise. An explicit
// interval stays the longest. A candidate that leaves the lock to others keeps its pace, too, and tells the leader, so that the
// others are told first.
func TestHowLongAFollowerRests(t *testing.T) {
	const lease, pause = 10 * time.Second, 2 * time.Second
	talking(t, lease, func(c *talk) {
		for range 20 {
			rest, rank := c.rests(elect.Step{Pause: pause})
			assert.LessOrEqual(t, rest, lease*9/10)
			assert.GreaterOrEqual(t, rest, lease*8/10)
			assert.EqualValues(t, 2, rank)
		}
		rest, rank := c.rests(elect.Step{Pause: pause, CoolingDown: true})
		assert.Equal(t, pause, rest)
		assert.EqualValues(t, table.MaxRank, rank)
		c.config.Poll = pause
		rest, _ = c.rests(elect.Step{Pause: pause})
		assert.Equal(t, pause, rest)
	})
}

// The rest follows the shorter of the two leases, and the time until the lock can be free. Otherwise, a follower would notice too late that
// a leader with a short lease has died.
func TestAFollowerRestsForTheShorterLease(t *testing.T) {
	for _, c := range []struct{ own, leaders, latest, rest time.Duration }{
		{10 * time.Second, 4 * time.Second, time.Hour, 4 * time.Second}, {4 * time.Second, 10 * time.Second, time.Hour, 4 * time.Second},
		{10 * time.Second, 10 * time.Second, 6 * time.Second, 0}, {10 * time.Second, 10 * time.Second, 100 * time.Millisecond, 0},
	} {
		talking(t, c.leaders, func(talk *talk) {
			talk.config.Lease = c.own
			const pause = time.Second
			if rest := talk.rest(elect.Step{Seen: []elect.LockView{talk.view}, Pause: pause, Latest: c.latest}, 0); c.rest == 0 {
				assert.Equal(t, max(c.latest, pause), rest)
			} else {
				assert.LessOrEqual(t, rest, c.rest*9/10)
				assert.GreaterOrEqual(t, rest, c.rest*8/10)
			}
		})
	}
}

// A follower rests for the usual pause after all that says nothing about a leader that is alive: a failed poll, a lost claim, or the row of
// its own last term, which nobody keeps alive any more.
func TestAFollowerRestsLongOnlyForALeaderThatIsAlive(t *testing.T) {
	const pause = time.Second
	for name, c := range map[string]struct {
		change func(*elect.Step, *table.Token)
		long   bool
	}{
		"a leader":                 {func(*elect.Step, *table.Token) {}, true},
		"another term of its own":  {func(_ *elect.Step, last *table.Token) { *last = 2 }, true},
		"its own last term":        {func(_ *elect.Step, last *table.Token) { *last = 1 }, false},
		"a claim that was lost":    {func(s *elect.Step, _ *table.Token) { s.Lost = true }, false},
		"a claim that failed":      {func(s *elect.Step, _ *table.Token) { s.Err = context.DeadlineExceeded }, false},
		"a poll that failed":       {func(s *elect.Step, _ *table.Token) { s.Err, s.Seen = context.DeadlineExceeded, nil }, false},
		"a free lock":              {func(s *elect.Step, _ *table.Token) { s.Seen[0].FreeIn = 0 }, false},
		"a lock without a lease":   {func(s *elect.Step, _ *table.Token) { s.Seen[0].LeaseRecord = nil }, false},
		"a leader that is leaving": {func(s *elect.Step, _ *table.Token) { s.Seen[0].Heartbeat = time.Now() }, false},
	} {
		talking(t, 10*time.Second, func(talk *talk) {
			step, last := elect.Step{Seen: []elect.LockView{talk.view}, Pause: pause, Latest: time.Hour}, table.Token(0)
			c.change(&step, &last)
			if rest := talk.rest(step, last); c.long {
				assert.Greater(t, rest, 7*pause, name)
			} else {
				assert.Equal(t, pause, rest, name)
			}
		})
	}
}

// A waiter whose ticket could not be written tries again as soon as without notifications. Otherwise, its ticket would expire, or not be in
// the table for a lease.
func TestAWaiterWhoseTicketWasNotWrittenTriesAgainSoon(t *testing.T) {
	const pause = 200 * time.Millisecond
	for _, written := range []bool{false, true} {
		for _, gone := range []bool{false, true} {
			talking(t, 10*time.Second, func(c *talk) {
				began := time.Now()
				c.view.Exists, c.view.At = true, began
				p := New(&c.config, table.Table{}, "e")
				p.Ear, p.Own, p.gone = c.config.Ear(), table.Ticket{Queue: "e", Time: 2, Nonce: "own"}, gone
				if written {
					p.Own.Beat = began
				}
				b := p.Asks()
				b.At = began
				p.Learns(b)
				p.Rest(context.Background(), elect.Step{Seen: []elect.LockView{c.view}, Pause: pause, Latest: time.Hour})
				p.Ear.Close()
				assert.Equal(t, written && !gone, time.Since(began) > pause, "written: %v, gone: %v", written, gone)
			})
		}
	}
}

// While the holder answers, the rest of a follower or a waiter ends when the lock can become free, or after a lease if that is sooner. The
// holder's lease may be shorter than the waiter's: if the holder dies, the lock can be free before the waiter notices that no answers come.
func TestARestEndsOnceTheLockCanBeFree(t *testing.T) {
	const pause = 200 * time.Millisecond
	for name, ahead := range map[string]int{"a follower": -1, "the first waiter": 0, "the second waiter": 1} {
		for _, lease := range []time.Duration{10 * time.Second, time.Minute, 90 * time.Second} {
			for _, latest := range []time.Duration{pause / 2, pause, time.Second, 7 * time.Second, 11 * time.Second, time.Hour} {
				talking(t, lease, func(c *talk) {
					began := time.Now()
					c.view.Exists, c.view.At = true, began
					step := elect.Step{Seen: []elect.LockView{c.view}, Pause: pause, Latest: latest}
					if ahead < 0 {
						c.rest(step, 0)
					} else {
						p := New(&c.config, table.Table{}, "e")
						p.Ear, p.Own = c.config.Ear(), table.Ticket{Queue: "e", Time: 2, Nonce: "own", Rank: 2, Beat: began}
						b := p.Asks()
						b.At = began
						for i := range ahead + 1 {
							b.Rows = append(b.Rows, rowOf(table.Ticket{Queue: "e", Time: table.Token(2 - i), Nonce: []string{"own", "other"}[i], Rank: 2, Grace: time.Second}, began))
						}
						p.Learns(b)
						assert.Equal(t, ahead, p.Ahead())
						p.Rest(context.Background(), step)
						p.Ear.Close()
					}
					least, most := lease*8/10, lease
					if ahead == 0 && lease > time.Minute { // the holder may hang
						least, most = lease/4, lease/4
					}
					assert.LessOrEqual(t, time.Since(began), max(pause, min(latest, most)), "%s: lease %v, free in %v", name, lease, latest)
					assert.GreaterOrEqual(t, time.Since(began), max(pause, min(latest, least)), "%s: lease %v, free in %v", name, lease, latest)
				})
			}
		}
	}
}

// A follower or a waiter asks as often as the shorter of its own lease and the holder's requires: the holder would otherwise forget the one
// that asks too seldom, which would also notice the holder's death too late.
func TestTheShorterLeaseSaysHowOftenTheHolderIsAsked(t *testing.T) {
	for _, own := range []time.Duration{time.Second, 10 * time.Second, 40 * time.Second} {
		for _, holders := range []time.Duration{time.Second, 10 * time.Second, 40 * time.Second} {
			for name, listen := range map[string]func(c *talk, ear *notify.Ear, seen []elect.LockView){
				"a follower": func(c *talk, ear *notify.Ear, seen []elect.LockView) {
					f := Follower{Config: &c.config, Ear: ear}
					f.learn(elect.Step{Seen: seen}, c.config.Clock.Now(), 0)
				},
				"a waiter": func(c *talk, ear *notify.Ear, seen []elect.LockView) {
					p := New(&c.config, table.Table{}, "e")
					p.Ear, p.Own = ear, table.Ticket{Queue: "e", Time: 2, Nonce: "own"}
					p.Learns(p.Asks())
					p.listen(seen)
				},
			} {
				talking(t, holders, func(c *talk) {
					c.config.Lease = own
					ear, shorter := c.config.Ear(), min(own, holders)
					listen(c, ear, []elect.LockView{c.view})
					const n = 20
					every := max(250*time.Millisecond, shorter/10) // for nobody is ahead
					time.Sleep(n * every)
					assert.InDelta(t, n, c.sent.Load(), n/6, "%s with a lease of %v, the holder's is %v", name, own, holders)
					ear.Close()
				})
			}
		}
	}
}

// A rest stops at once when the waiter's ctx ends, however long it would have lasted: a program must be able to stop.
func TestARestEndsWithItsCtx(t *testing.T) {
	for _, place := range []bool{false, true} {
		talking(t, 10*time.Second, func(talk *talk) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			step, began := elect.Step{Seen: []elect.LockView{talk.view}, Pause: 5 * time.Second, Latest: time.Hour}, time.Now()
			ear := talk.config.Ear()
			if place {
				p := New(&talk.config, table.Table{}, "e")
				p.Ear = ear
				p.Learns(p.Asks())
				ear.Learn(notify.Seen{Locks: []notify.Lock{lockOf(talk.view)}, Follower: true}, talk.config.Clock.Now())
				p.sleep(ctx, step.Pause, step.Latest)
			} else {
				f := Follower{Config: &talk.config, Ear: ear}
				f.Rest(ctx, step, talk.config.Clock.Now(), 0)
			}
			assert.Equal(t, 3*time.Second, time.Since(began))
			ear.Close()
		})
	}
}

// The first waiter of a lock with a long lease polls every quarter of the lease, even if the holder answers: it may hang otherwise.
func TestTheFirstWaiterForALongLeasePollsMoreOften(t *testing.T) {
	for lease, longest := range map[time.Duration]time.Duration{40 * time.Second: 40 * time.Second, time.Minute: time.Minute, time.Minute + 1: 20 * time.Second,
		70 * time.Second: 20 * time.Second, 80 * time.Second: 20 * time.Second, time.Hour: time.Hour / 4} {
		talking(t, lease, func(c *talk) {
			p := New(&c.config, table.Table{}, "e")
			p.Ear, p.seen, p.Own = c.config.Ear(), nil, table.Ticket{Queue: "e", Time: 1, Nonce: "a", Beat: time.Now()}
			began := time.Now()
			p.Ear.Learn(notify.Seen{Locks: []notify.Lock{lockOf(c.view)}, Ticket: p.Own}, c.config.Clock.Now())
			p.sleep(context.Background(), time.Second, 24*time.Hour)
			p.Ear.Close()
			require.LessOrEqual(t, time.Since(began), longest)
			if lease > time.Minute {
				require.Equal(t, longest, time.Since(began))
			}
			require.GreaterOrEqual(t, time.Since(began), longest*9/10-time.Second)
		})
	}
}
