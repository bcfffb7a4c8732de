package elect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// lonely is a store that runs one transaction at a time, as the emulator does, and aborts others. Each of its steps takes
// ten milliseconds.
type lonely struct {
	memstore.Store
	busy    atomic.Bool
	aborted atomic.Int64
}

const step = 10 * time.Millisecond

func (l *lonely) Transact(ctx context.Context, name string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	if !l.busy.CompareAndSwap(false, true) {
		l.aborted.Add(1)
		time.Sleep(step)
		return time.Time{}, table.ErrAborted
	}
	defer l.busy.Store(false)
	time.Sleep(step)
	return l.Store.Transact(ctx, name, fn)
}

// hold makes n candidates with new names compete from the same instant, some at a time, and returns how long it takes until
// all of them have had their locks.
func hold(t *testing.T, store table.Store, gate *Gate, n, atATime int) time.Duration {
	began := time.Now()
	places := make(chan struct{}, atATime)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			places <- struct{}{}
			c := candidate("c", store, fmt.Sprint("lock-", i))
			c.Gate.Gate = gate
			for {
				s := c.Try(t.Context(), All, lease/3)
				if s.Term != nil {
					break
				}
				Sleep(t.Context(), c.Clock, s.Pause)
			}
			<-places
		})
	}
	all.Wait()
	return time.Since(began)
}

// A thousand claims at once do not keep each other from their locks, even if the server runs one transaction at a time.
func TestAThousandClaimsDoNotAbortEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var few, many lonely
		eight := hold(t, &few, nil, 1000, 8)
		all := hold(t, &many, &Gate{}, 1000, 1000)
		t.Logf("eight at a time: %v, %d aborted; all: %v, %d aborted", eight, few.aborted.Load(), all, many.aborted.Load())
		assert.Less(t, all, 3*eight)
		assert.Less(t, all, 3*1000*2*step, "each lock takes two transactions")
	})
}

// As long as no claim is aborted, no claim waits for another.
func TestClaimsThatAreNotAbortedDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() table.Store {
			store := &memstore.Store{}
			return table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
				time.Sleep(step)
				return call(ctx, store)
			})
		}
		assert.Equal(t, hold(t, slow(), nil, 1000, 1000), hold(t, slow(), &Gate{}, 1000, 1000))
	})
}

// full returns a gate with one place, which is taken, and a function that gives this place up.
func full(t *testing.T) (*Gate, func()) {
	g := &Gate{limit: 1}
	p, err := g.enter(t.Context(), SystemClock{}, Patient, "", false)
	require.NoError(t, err)
	require.NotZero(t, p.began)
	return g, p.leave
}

// If even the claims that go alone abort, the gate lets one at a time pass, not all.
func TestAGateWhoseClaimsAllAbortStaysLimited(t *testing.T) {
	var g Gate
	for range 10 * longestSample {
		g.count(1)
	}
	assert.True(t, g.Bounded())
	assert.Equal(t, 1, g.limit)
}

// The limit is a share of the claims that were in flight, whether or not they had to wait for a place.
func TestClaimsThatWaitForNoPlaceAreInFlight(t *testing.T) {
	var g Gate
	for range 8 {
		defer g.Count()()
	}
	for i := range 8 {
		g.count(i % 4 / 3)
	}
	assert.Equal(t, 6, g.limit, "two of eight claims had wasted aborts")
}

// A limit is doubled after 16 samples in which claims had to wait and none was wasted, but not sooner. Other samples do not count: one
// bad hour must not slow down the claims of a process for the rest of its life, and a good minute must not make them collide again.
func TestALimitRisesOnceClaimsHaveWaitedForLongAndNoneWasWasted(t *testing.T) {
	g := &Gate{limit: 3}
	samples := func(n, of, vain int, waited bool) {
		for range n {
			before := g.limit
			g.waited, g.most = waited, 7
			for i := range of {
				require.Equal(t, before, g.limit, "within a sample")
				if i < vain {
					g.count(1)
				} else {
					g.count(0)
				}
			}
			require.Zero(t, g.ended)
		}
	}
	samples(15, 8, 0, true)
	samples(20, 8, 0, false) // nobody waited
	samples(20, 8, 1, true)  // not calm, but not worse than before
	assert.Equal(t, 3, g.limit)
	samples(1, 8, 0, true)
	assert.Equal(t, 6, g.limit)
	samples(15, 8, 0, true)
	assert.Equal(t, 6, g.limit)
	samples(1, 8, 2, true)
	assert.Equal(t, 7*6/8, g.limit, "what went well of those in flight")
	samples(15, 8, 0, true)
	assert.Equal(t, 5, g.limit)
	samples(1, 8, 0, true)
	assert.Equal(t, 10, g.limit)
	samples(16, 10, 0, true)
	assert.Equal(t, 20, g.limit)
	samples(16, 20, 0, true)
	assert.Equal(t, 40, g.limit)
	samples(16, 40, 0, true)
	assert.Equal(t, 80, g.limit)
	samples(16, 64, 0, true)
	assert.Equal(t, 160, g.limit)
	samples(1, 64, 64, true)
	assert.Equal(t, 1, g.limit, "one claim can always go")
}

// Urgent claims come first, then the first waiters of queues, then the others in the order of their arrival, but the owners
// take turns. Every fourth place goes to the claim that has waited longest, so that none waits for ever.
func TestPlacesAreGivenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leave := full(t)
		order := make(chan string, 100)
		join := func(name string, u Urgency, owner string) {
			go func() {
				p, err := g.enter(t.Context(), SystemClock{}, u, owner, false)
				assert.NoError(t, err)
				order <- name
				p.leave()
			}()
			synctest.Wait()
		}
		join("a1", Patient, "a")
		join("a2", Patient, "a")
		join("a3", Patient, "a")
		join("b1", Patient, "b")
		join("turn", InTurn, "a")
		join("urgent1", Urgent, "a")
		join("urgent2", Urgent, "a")
		join("b2", Patient, "b")
		leave()
		synctest.Wait()
		close(order)
		assert.Equal(t, []string{"urgent1", "urgent2", "a1", "turn", "b1", "a2", "a3", "b2"}, slices.Collect(func(yield func(string) bool) {
			for name := range order {
				yield(name)
			}
		}))
	})
}

// An owner takes turns with the others from its first claim on, however many places they have had before. Otherwise, either a newcomer
// with many claims or an owner that has always been there would keep all others waiting.
func TestAnOwnerThatComesLaterTakesTurnsWithTheOthers(t *testing.T) {
	for _, before := range []int{0, 1, 20} { // places that the first owner has had
		synctest.Test(t, func(t *testing.T) {
			g, leave := full(t)
			var order []string
			join := func(owner string, n int) {
				for range n {
					go func() {
						p, err := g.enter(t.Context(), SystemClock{}, Patient, owner, false)
						assert.NoError(t, err)
						order, leave = append(order, owner), p.leave
					}()
					synctest.Wait()
				}
			}
			give := func(n int) {
				for range n {
					leave()
					synctest.Wait()
				}
			}
			join("old", before+8)
			give(before)
			join("new", 8)
			order = nil
			give(16)
			news := 0
			for i, owner := range order {
				if owner == "new" {
					news++
				}
				if fourths := (i + 4) / 4; i < 12 { // go to the one that has waited longest
					assert.LessOrEqual(t, news, (i+2)/2, "%v", order)
					assert.GreaterOrEqual(t, news+fourths, i/2, "%v", order)
				}
			}
			leave()
		})
	}
}

// An owner whose claims give up waiting keeps its turns: its later claims take the places of those that have left. Otherwise, an
// owner whose claims often time out would come after all others, although it gets nothing.
func TestClaimsThatGiveUpCostTheirOwnerNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leave := full(t)
		var order []string
		join := func(owner string) (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if p, err := g.enter(ctx, SystemClock{}, Patient, owner, false); err == nil {
					order, leave = append(order, owner), p.leave
				}
			}()
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		join("x")
		giveUp := join("x")
		for range 20 {
			next := join("x")
			giveUp()
			giveUp = next
		}
		join("x")
		for range 4 {
			join("y")
		}
		for range 7 {
			leave()
			synctest.Wait()
		}
		leave()
		assert.Equal(t, []string{"x", "y", "x", "y", "x", "y", "y"}, order)
		assert.Empty(t, g.owners)
	})
}

// A claim whose ctx ends while it waits leaves the gate. A claim that is not answered gives its place up after a while.
func TestWhoLeavesTheGateKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := full(t)
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := g.enter(short, SystemClock{}, Urgent, "", false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		p, err := g.enter(t.Context(), SystemClock{}, Patient, "", false)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(began), "the place of the claim that was never answered")
		p.leave()
		assert.Zero(t, g.flying)
	})
}

// A claim that is not answered gives its place up after a while, even if there was no limit yet when it came. Otherwise, one such
// claim could keep all later claims of the process waiting for seconds.
func TestAClaimFromBeforeTheLimitKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		began := time.Now()
		_, err := g.enter(t.Context(), SystemClock{}, Urgent, "", false)
		require.NoError(t, err)
		for range shortestSample {
			g.count(1)
		}
		require.Equal(t, 1, g.limit)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := g.enter(short, SystemClock{}, Urgent, "", false)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(began))
		p.leave()
		assert.Zero(t, g.flying)
	})
}

// Even at a gate without a limit, an owner has at most 32 claims in flight, and a claim that is not answered gives its place up after a
// while. The process's own claims do not wait.
func TestClaimsOfAnOwnerThatAreNotAnsweredMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		for owner, waits := range map[string]time.Duration{"o": time.Second, "p": time.Second, "": 0} {
			began := time.Now()
			for range mostOfOwner + 1 {
				_, err := g.enter(t.Context(), SystemClock{}, Urgent, owner, false)
				require.NoError(t, err)
			}
			assert.Equal(t, waits, time.Since(began), "owner %q", owner)
		}
	})
}

// A claim that is answered and then over has given its place up once, and so has one whose time was up before.
func TestAPlaceIsGivenUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{limit: 2}
		for _, late := range []time.Duration{0, 2 * g.patience()} {
			p, err := g.enter(t.Context(), SystemClock{}, Urgent, "o", false)
			require.NoError(t, err)
			time.Sleep(late)
			synctest.Wait()
			p.answered()
			p.leave()
			assert.Zero(t, g.flying)
			assert.Empty(t, g.owners)
		}
	})
}

// An aborted claim counts as wasted once, and only if the first poll after it shows that the lock can still be claimed. Otherwise, each
// lock that another process got first would slow down the claims of all locks when it is free again, perhaps days later.
func TestAnAbortIsWastedIfTheNextPollFindsTheLockFree(t *testing.T) {
	for name, c := range map[string]struct {
		next  func(t *testing.T, c, rival *Candidate, try func() Step) // what happens before the lock is free at last
		waste int
	}{
		"it is free": {func(*testing.T, *Candidate, *Candidate, func() Step) {}, 1},
		"another candidate has it": {func(t *testing.T, _, rival *Candidate, try func() Step) {
			term := rival.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			require.Nil(t, try().Term)
			require.NoError(t, term.Release(t.Context(), nil))
		}, 0},
		"the poll fails": {func(t *testing.T, c, _ *Candidate, try func() Step) {
			link := c.Table.Store.(*memstore.Link)
			link.Refuse(refusingStep("observe", errRefused))
			require.ErrorIs(t, try().Err, errRefused)
			link.Refuse(nil)
		}, 1},
		"it is free, and the caller gives up": {func(t *testing.T, c, _ *Candidate, _ func() Step) {
			c.Gate.limit, c.Gate.flying = 1, 1
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, c.Try(short, All, lease/3).Err, context.DeadlineExceeded)
			c.Gate.limit, c.Gate.flying = 0, 0
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				me, rival := candidate("c", link, "m"), candidate("rival", link.Store, "m")
				me.Gate.Gate = &Gate{}
				try := func() Step { return me.Try(t.Context(), All, lease/3) }
				link.Refuse(refusingStep("claim", table.ErrAborted))
				require.True(t, try().Lost)
				require.Zero(t, me.Gate.vain)
				link.Refuse(nil)
				c.next(t, me, rival, try)
				term := try().Term
				require.NotNil(t, term)
				defer term.End(nil)
				assert.Equal(t, c.waste, me.Gate.vain)
			})
		})
	}
}

// A claim that has waited for more than lease/50 for its place polls again, so that it never claims a lock that has been claimed
// since. This poll is sent at once, because others wait for the place.
func TestAClaimThatHasWaitedLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leave := full(t)
		store, steps, alone := &memstore.Store{}, map[string]int{}, []string(nil)
		late := candidate("late", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			if steps[step]++; table.ApartOf(ctx) > 0 {
				alone = append(alone, step)
			}
			return call(ctx, store)
		}), "m")
		late.Gate.Gate = g
		tried := make(chan Step)
		go func() { tried <- late.Try(t.Context(), All, lease/3) }()
		synctest.Wait()
		other := candidate("other", store, "m")
		require.NotNil(t, other.Try(t.Context(), All, lease/3).Term)
		time.Sleep(lease/50 + 1)
		leave()
		s := <-tried
		require.Nil(t, s.Term)
		assert.NoError(t, s.Err)
		assert.False(t, s.Lost)
		assert.Equal(t, "other", s.Seen[0].Writer)
		assert.Equal(t, 2, steps["observe"])
		assert.Equal(t, []string{"observe"}, alone[:1])
		assert.Zero(t, steps["claim"])
		assert.Zero(t, g.flying)
	})
}

// A claim that has its place at once, or almost, does not poll again.
func TestAClaimThatHasHardlyWaitedPollsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leave := full(t)
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("c", link, "m")
		c.Gate.Gate = g
		time.AfterFunc(lease/50, leave)
		require.NotNil(t, c.Try(t.Context(), All, lease/3).Term)
		assert.Equal(t, 1, link.Counts()["observe"])
	})
}

// While heartbeats are in flight, no further claim begins that could abort them.
func TestClaimsWaitForHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{limit: 8}
		done := g.Beat()
		time.AfterFunc(time.Second, done)
		began := time.Now()
		p, err := g.enter(t.Context(), SystemClock{}, Urgent, "", false)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(began))
		p.leave()
	})
}
