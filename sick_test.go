package spindle_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// tally is how long each of several machines led, and in how many terms.
type tally struct {
	led   map[string]time.Duration
	terms map[string]int
	total time.Duration
}

// lead lets time pass, and records about once a second which machine leads. There are never two leaders.
func lead(b *fleet.Fleet, d time.Duration, ms ...*fleet.Machine) tally {
	const every = 997 * time.Millisecond
	n := tally{led: map[string]time.Duration{}, terms: map[string]int{}}
	last := spindle.Token(0)
	for ; n.total < d; n.total += every {
		time.Sleep(every)
		synctest.Wait()
		leaders := 0
		for _, m := range ms {
			leads, token := m.HasLock()
			if !leads {
				continue
			}
			leaders++
			n.led[m.Settings().ID] += every
			if token != last {
				n.terms[m.Settings().ID]++
				last = token
			}
		}
		require.LessOrEqual(b.T, leaders, 1)
	}
	return n
}

// share returns the fraction of the time for which one of the given machines led.
func (n tally) share(ids ...string) float64 {
	var sum time.Duration
	for _, id := range ids {
		sum += n.led[id]
	}
	return float64(sum) / float64(n.total)
}

// A machine that can win the lock but not keep it, because its heartbeats fail, leaves the lock to other machines.
func TestALeaderWhoseHeartbeatsFailYields(t *testing.T) {
	for _, preferred := range []bool{false, true} {
		for _, how := range memstore.Sicknesses {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				opts := []spindle.Option{spindle.WithHandover()}
				if preferred {
					opts = append(opts, spindle.WithPriority(1))
				}
				sick := b.Start("sick", spindle.WithHandover())
				c, d := b.Start("c", opts...), b.Start("d", opts...)
				sick.Link.Sicken("heartbeat", how, 4*time.Second)
				lead(b, time.Hour, sick, c, d) // until the others know
				n := lead(b, 2*time.Hour, sick, c, d)
				assert.GreaterOrEqual(t, n.share("c", "d"), 0.95, "preferred %v, %s: %v", preferred, how, n)
				sick.Link.Heal()
				b.End(sick, c, d)
				time.Sleep(time.Minute) // let late messages arrive
			})
		}
	}
}

// The first heartbeats succeed, until the work overloads the client or the processor.
func TestALeaderWhoseWorkChokesItsHeartbeatsYields(t *testing.T) {
	for i := range 16 { // who is first when the lease has expired is random
		opts := [][]spindle.Option{nil, {spindle.WithReclaim()}}[i%2]
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			var choked atomic.Bool
			a := b.Machine("a", append(opts, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
				time.Sleep(fleet.Lease)
				choked.Store(true)
				<-ctx.Done()
				choked.Store(false)
			}))...)
			a.Link.Lose(func(step string) bool { return choked.Load() && step == "heartbeat" }, nil)
			b.Run(a)
			c, d := b.Start("c"), b.Start("d")
			n := lead(b, time.Hour, a, c, d)
			assert.GreaterOrEqual(t, n.share("c", "d"), 0.95, "%v", n)
			b.End(a, c, d)
		})
	}
}

// A candidate that yields does not wait if there are no other candidates.
func TestALoneCandidateIsElectedAgainAfterEachOutage(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		for range 5 {
			time.Sleep(fleet.Lease)
			a.Link.Cut()
			time.Sleep(2 * fleet.Lease)
			a.Link.Mend()
			took := b.Until(fleet.Lease, a.Has)
			assert.LessOrEqual(t, took, 2*fleet.Lease/3, "an attempt that was lost, and a pause")
		}
		b.End(a)
	})
}

// A machine that was suspended is elected again at once, if there are no others.
func TestALoneCandidateDoesNotYieldAfterASuspension(t *testing.T) {
	for _, opts := range [][]spindle.Option{nil, {spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() })}} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a", opts...)
			for range 20 { // the end of the work may be noticed before the end of the term
				time.Sleep(fleet.Lease)
				lost := len(a.Seen.All())
				a.Clock.Wall.Add(int64(fleet.Lease))
				b.Until(fleet.Lease/2, func() bool { return len(a.Seen.All()) > lost })
				b.Until(fleet.Lease/50, a.Has)
			}
			b.End(a)
		})
	}
}

// Several requests are made between a look at a free lock and an acknowledged confirmation. A term counts from the last
// of them.
func TestASlowNetworkCanKeepAShortLease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		slow := memstore.NewLocking(b.Store)
		slow.OneWay = 150 * time.Millisecond
		a := b.Machine("a", spindle.WithLease(time.Second))
		a.Link.Store = slow
		b.Run(a)
		b.Until(10*time.Second, a.Has)
		_, age, _ := a.Lock.Seen()
		assert.LessOrEqual(t, age, 2*slow.OneWay+5*time.Millisecond, "from before the commit that confirmed it")
		assert.GreaterOrEqual(t, age, slow.OneWay)
		n := lead(b, 10*time.Minute, a)
		assert.Equal(t, 1, n.terms["a"])
		b.End(a)
	})
}

// With a lease of hours, a failed attempt is not repeated only hours later.
func TestALongLeaseDoesNotMakeAFailureExpensive(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Second, 24 * time.Hour} {
		for _, step := range []string{"observe", "claim", "confirm", "heartbeat", "release", "ask"} {
			t.Run(lease.String()+"/"+step, func(t *testing.T) {
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					a := b.Machine("a", spindle.WithLease(lease), spindle.WithHandover())
					var sent []time.Time
					a.Link.Refuse(func(s string) error {
						if s == step {
							if sent = append(sent, time.Now()); len(sent) <= 8 {
								return errors.New("unavailable")
							}
						}
						return nil
					})
					b.Run(a)
					b.Until(2*time.Minute, a.Has)
					switch step {
					case "heartbeat":
						time.Sleep(lease - lease/10)
					case "release":
						a.Stop()
						<-a.Done
					case "ask":
						limited, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
						_, _ = a.RequestHandover(limited, a.Token())
						cancel()
					}
					synctest.Wait()
					require.GreaterOrEqual(t, len(sent), 9, "it was tried until it succeeded")
					for i := 1; i < 9; i++ {
						assert.LessOrEqual(t, sent[i].Sub(sent[i-1]), min(time.Second<<(i-1), 10*time.Second), "pause %d", i)
					}
					assert.GreaterOrEqual(t, sent[8].Sub(sent[0]), min(lease/10, 10*time.Second), "and not without a pause")
					b.End(slices.DeleteFunc([]*fleet.Machine{a}, func(*fleet.Machine) bool { return step == "release" })...)
				})
			})
		}
	}
}

// A process whose leader function can't start gives the lock up, so that a healthy candidate leads. It is not unhealthy,
// because a restart would not help more than its own next try.
func TestALeaderFunctionThatReturnsGivesTheLockToAHealthyCandidate(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		var tries atomic.Int32
		a := b.Start("a", to, spindle.WithLeader(func(context.Context, spindle.Term) { tries.Add(1) }))
		c := b.Start("c", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() }))
		b.Until(fleet.Lease/3+fleet.Lease/50, c.Has)
		token := c.Token()
		for range 100 {
			time.Sleep(fleet.Lease / 10)
			require.NoError(t, a.Live(nil))
			require.True(t, c.Has())
		}
		assert.Equal(t, token, c.Token())
		assert.EqualValues(t, 1, tries.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())
		lost := a.Seen.All()[1]
		assert.Equal(t, spindle.Lost, lost.Kind)
		require.ErrorIs(t, lost.Err, spindle.ErrSteppedDown)
		assert.EqualError(t, lost.Err, "stepped down: the leader function returned")
		b.End(a, c)
	})
}

// elections returns how many leases passed between a machine's elections.
func elections(m *fleet.Machine) (gaps []float64) {
	var last time.Time
	for _, e := range m.Seen.All() {
		if e.Kind != spindle.Elected {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, e.At.Sub(last).Seconds()/fleet.Lease.Seconds())
		}
		last = e.At
	}
	return gaps
}

// The pauses of a leader function that keeps returning double up to three leases. A term of three leases begins anew,
// however it ends. In the meantime, the process is healthy, and one warning is enough.
func TestALeaderFunctionThatKeepsReturningLeadsEverMoreSeldom(t *testing.T) {
	stepDown := func(a *fleet.Machine) error { return a.StepDown(context.Background()) }
	for name, c := range map[string]struct {
		end   func(*fleet.Machine) error
		then  []float64 // how many leases pass from election to election
		warns int       // how often a row of pauses begins with a function that has probably failed
	}{
		"by returning": {nil, []float64{3 + 1./3, 2. / 3, 4. / 3}, 1},
		"by StepDown":  {stepDown, []float64{3 + 2./3, 1. / 3, 2. / 3}, 2},
	} {
		end := c.end
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				to, log := logging()
				var works atomic.Bool
				a := b.Start("a", to, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
					if !works.Load() {
						return
					}
					if end != nil {
						<-ctx.Done()
						return
					}
					time.Sleep(3 * fleet.Lease)
				}))
				for range 2000 {
					time.Sleep(fleet.Lease / 100)
					require.NoError(t, a.Health())
					require.NoError(t, a.Live(nil))
				}
				want := []float64{1. / 3, 2. / 3, 4. / 3, 8. / 3, 3, 3, 3, 3}
				gaps := elections(a)
				require.InDeltaSlice(t, want, gaps[:len(want)], 0.05)
				assert.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())

				works.Store(true)
				b.Until(3*fleet.Lease+fleet.Lease/10, a.Has)
				last := len(elections(a))
				works.Store(false)
				if end != nil {
					time.Sleep(3 * fleet.Lease)
					require.NoError(t, end(a))
				}
				time.Sleep(10 * fleet.Lease)
				gaps = elections(a)[last:]
				assert.InDeltaSlice(t, c.then, gaps[:len(c.then)], 0.1)
				assert.Equal(t, c.warns, strings.Count(log.String(), "WARN"), log.String())
				b.End(a)
			})
		})
	}
}

// If the leader functions of all processes return, the lock does not go round and round.
func TestTwoProcessesWhoseLeaderFunctionsReturnTakeTurnsSlowly(t *testing.T) {
	for _, term := range []time.Duration{0, fleet.Lease / 2} { // the other one can see a term of half a lease
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			lead := spindle.WithLeader(func(context.Context, spindle.Term) { time.Sleep(term) })
			a, c := b.Start("a", lead), b.Start("c", lead)
			for range 100 {
				time.Sleep(fleet.Lease)
				require.NoError(t, a.Health())
				require.NoError(t, c.Health())
			}
			for _, m := range []*fleet.Machine{a, c} {
				terms := strings.Count(m.Seen.Kinds(), "elected")
				assert.LessOrEqual(t, terms, 40)
				assert.Greater(t, terms, 25, "it tries again")
			}
			b.End(a, c)
		})
	}
}

// Nothing complains about a leader function that is meant to return.
func TestATermGoesOnWithoutItsLeaderFunctionIfItIsTo(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		var terms atomic.Int32
		lead := spindle.WithLeader(func(context.Context, spindle.Term) { terms.Add(1) })
		a := b.Start("a", to, spindle.WithKeepOnReturn(), spindle.WithHandover(), lead)
		c := b.Start("c")
		for range 100 {
			time.Sleep(fleet.Lease / 10)
			require.True(t, a.Has())
			require.NoError(t, a.Health())
		}
		assert.EqualValues(t, 1, terms.Load())
		assert.NotContains(t, log.String(), "WARN")
		require.NoError(t, a.StepDown(context.Background()))
		b.Until(fleet.Lease/10, c.Has)
		b.End(a, c)
	})
}

// A function that returns because its term is over has not given the lock up, although the event for the loss may come
// after it. It competes again like any other candidate.
func TestALeaderFunctionThatReturnsAtALossIsNoReasonToRest(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		a := b.Start("a", to, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() }))
		for range 25 { // the loss and the return race
			b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
			b.Until(fleet.Lease, func() bool { return !a.Has() })
			synctest.Wait()
			b.Until(fleet.Lease/3+fleet.Lease+fleet.Lease/25, a.Has)
		}
		assert.NotContains(t, log.String(), "the leader function returned before")
		assert.Equal(t, 25, strings.Count(log.String(), "level=WARN msg=lost"), "nobody asked for it")
		b.End(a)
	})
}

// A candidate that rests does not become the successor of a leader that is leaving, because it could not claim the lock.
func TestACandidateThatRestsIsNobodysSuccessor(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLeader(func(context.Context, spindle.Term) {}))
		time.Sleep(6 * fleet.Lease) // from the fifth to the eighth lease, it rests
		c := b.Start("c")
		b.Until(fleet.Lease, c.Has)
		d := b.Start("d", spindle.WithPriority(8)) // only the highest priority can be a successor
		require.NoError(t, c.StepDown(context.Background()))
		b.Until(fleet.Lease/50+fleet.Lease/100, d.Has)
		assert.Zero(t, a.Link.Counts()["succeed"])
		b.End(a, c, d)
	})
}

// How long a candidate rests after its leader function has returned, and whether that is a warning, follows from its terms so far: a rest
// is twice as long as the one before, from a third of the lease up to three leases, and a term of three leases begins anew, however it
// ended. A function that fails must not keep the lock from others, and one that works for long must not cost a pause or a warning.
func TestARestFollowsFromTheTermsBeforeIt(t *testing.T) {
	type plan struct {
		end   int // 0: the function returns, 1: StepDown, 2: the lock is taken away
		after time.Duration
	}
	random := rand.New(rand.NewPCG(1, 6))
	plans := make([]plan, 80)
	for i := range plans {
		plans[i] = plan{max(random.IntN(5)-2, 0), []time.Duration{0, fleet.Lease, fleet.Lease * 5 / 2, 3*fleet.Lease - 1, 3 * fleet.Lease, 4 * fleet.Lease}[random.IntN(6)]}
	}
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		var term atomic.Int32
		a := b.Start("a", to, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			if p := plans[min(int(term.Add(1)), len(plans))-1]; p.end == 0 {
				ctx, cancel := context.WithTimeout(ctx, p.after)
				defer cancel()
				<-ctx.Done()
				return
			}
			<-ctx.Done()
		}))
		for int(term.Load()) < len(plans) {
			now := term.Load()
			if p := plans[max(now, 1)-1]; now > 0 && p.end > 0 {
				time.Sleep(p.after)
				if p.end == 1 {
					require.NoError(t, a.StepDown(context.Background()))
				} else {
					b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
				}
			}
			for waited := time.Duration(0); term.Load() == now; waited += fleet.Lease / 100 {
				require.Less(t, waited, 10*fleet.Lease)
				time.Sleep(fleet.Lease / 100)
			}
		}
		b.End(a)
		var elected, lost, length time.Duration
		rest, warns, rests := time.Duration(0), 0, map[time.Duration]int{}
		began := a.Seen.All()[0].At
		for i, e := range a.Seen.All() {
			at := e.At.Sub(began)
			switch e.Kind {
			case spindle.Elected:
				elected = at
				if i > 0 {
					assert.GreaterOrEqual(t, at-lost, rest, "event %d", i)
					assert.LessOrEqual(t, at-lost, rest+fleet.Lease/25, "event %d", i)
				}
			case spindle.Lost:
				lost, rest = at, fleet.Lease/3
				if at-elected >= 3*fleet.Lease {
					length = 0
				}
				if strings.Contains(e.Err.Error(), "the leader function returned") {
					if length == 0 && at-elected < 3*fleet.Lease {
						warns++
					}
					length = min(max(2*length, fleet.Lease/3), 3*fleet.Lease)
					rest = length
					rests[length]++
				}
			}
		}
		assert.Len(t, rests, 5, "%v", rests)
		assert.Greater(t, warns, 2)
		assert.Equal(t, warns, strings.Count(log.String(), "WARN msg=\"the leader function returned before"))
	})
}
