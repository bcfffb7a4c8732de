package spindle_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
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
				n := lead(b, 6*time.Hour, sick, c, d)
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
	for _, opts := range [][]spindle.Option{nil, {spindle.WithReclaim()}} {
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
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		for range 5 {
			time.Sleep(fleet.Lease)
			lost := len(a.Seen.All())
			a.Clock.Wall.Add(int64(fleet.Lease))
			b.Until(fleet.Lease/2, func() bool { return len(a.Seen.All()) > lost })
			b.Until(fleet.Lease/50, a.Has)
		}
		b.End(a)
	})
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
	for _, lease := range []time.Duration{10 * time.Second, time.Hour, 24 * time.Hour} {
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
