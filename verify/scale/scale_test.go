package scale

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// By default the tests run a small part of the load, and a tenth of that to compare it with.
var full = flag.Bool("full", false, "run the whole load, which takes minutes and gigabytes")

const lease = 10 * time.Second

// sizes returns the load that the test is about, or the given part of it, after a tenth of that.
func sizes(whole, part int) []int {
	if !*full {
		whole /= part
	}
	return []int{whole / 10, whole}
}

// growth compares what each process costs for the two sizes. It must not grow with the load.
func growth(t *testing.T, what string, small, large float64) {
	t.Helper()
	assert.LessOrEqual(t, large, 1.15*small+0.01, "%s grows faster than the load: from %.3g to %.3g each", what, small, large)
}

// process is what the options of one process's locks have in common.
func process(m *meter, id string) (*memstore.Link, spindle.CommonOption) {
	link := &memstore.Link{Store: m}
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock, c.Process = link, &fleet.Clock{}, id })
	return link, spindle.Options(seam, spindle.WithID(id), spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.DiscardHandler)))
}

// electors runs n processes that compete for one lock.
type electors struct {
	all   []*spindle.Lock
	links []*memstore.Link
	stop  context.CancelFunc
	done  []chan error
}

// startElectors starts them. If net is not nil, they notify each other.
func startElectors(t *testing.T, m *meter, n int, net *spindletest.Network) *electors {
	ctx, stop := context.WithCancel(context.Background())
	e := &electors{stop: stop}
	for i := range n {
		link, own := process(m, fmt.Sprint("p", i))
		opts := []spindle.Option{own}
		if net != nil {
			told, _ := net.Process()
			opts = append(opts, told)
		}
		l, done := spindle.New(nil, "locktable", "elector", opts...), make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		e.all, e.links, e.done = append(e.all, l), append(e.links, link), append(e.done, done)
	}
	return e
}

func (e *electors) leader() int {
	for i, l := range e.all {
		if ok, _ := l.HasLock(); ok {
			return i
		}
	}
	return -1
}

// vacancy cuts the leader off, and returns how long there is no leader after its last heartbeat could have been.
func (e *electors) vacancy(t *testing.T) time.Duration {
	was := e.leader()
	e.links[was].Cut()
	defer e.links[was].Mend()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		if now := e.leader(); now >= 0 && now != was {
			return time.Since(start)
		}
		require.Less(t, time.Since(start), 5*lease, "no leader")
	}
}

func (e *electors) end() {
	e.stop()
	for _, done := range e.done {
		<-done
	}
	time.Sleep(time.Hour) // what hangs ends
}

// Each follower costs the same, whether there are a thousand or ten thousand, and a crash is noticed as quickly.
func TestTenThousandProcessesOnOneElector(t *testing.T) {
	var each []float64
	for _, n := range sizes(10_000, 10) {
		fleet.Bubble(t, func(t *testing.T) {
			m := newMeter()
			var e *electors
			bytes := memory(t, n, func() { e = startElectors(t, m, n, nil); time.Sleep(3 * lease) })
			all, costs := m.over(3 * lease)
			all /= float64(n)
			var longest time.Duration
			for range 3 {
				longest = max(longest, e.vacancy(t))
				time.Sleep(2 * lease)
			}
			t.Logf("%d processes: %.2f requests a lease each, %s; %d KiB each; without a leader after a cut: at most %.2f leases", n, all, costs, bytes>>10, longest.Seconds()/lease.Seconds())
			each = append(each, all)
			assert.LessOrEqual(t, longest, lease+lease/20, "a cut leader is replaced once its lease has expired")
			e.end()
		})
	}
	growth(t, "what a process sends", each[0], each[1])
}

// With notifications, each follower polls about once a lease, however many there are, although a leader tells only 64 of them that
// it stops. The other followers ask.
func TestManyFollowersWithNotifications(t *testing.T) {
	for _, n := range sizes(10_000, 33) {
		fleet.Bubble(t, func(t *testing.T) {
			m, net := newMeter(), spindletest.NewNetwork()
			e := startElectors(t, m, n, net)
			time.Sleep(3 * lease)
			all, costs := m.over(60 * lease) // few followers vary by a tenth within twenty leases
			all = (all - 3) / float64(n-1)   // without the heartbeats
			longest := e.vacancy(t)
			t.Logf("%d processes: %.2f requests a lease of each follower, %s; without a leader after a cut: %.2f leases", n, all, costs, longest.Seconds()/lease.Seconds())
			assert.LessOrEqual(t, all, 1.3)
			assert.LessOrEqual(t, longest, lease+lease/20)
			e.end()
		})
	}
}

// The locks of one process share their commits, so the number of commits follows the number of processes.
func TestAHundredThousandLocksInATable(t *testing.T) {
	const (
		processes = 20
		apart     = 200 * time.Microsecond // between two beginnings, or two ends
	)
	var each []float64
	for _, n := range sizes(100_000, 100) {
		fleet.Bubble(t, func(t *testing.T) {
			m := newMeter()
			var all []*spindle.Lock
			var done []chan error
			var stops []context.CancelFunc
			bytes := memory(t, n, func() {
				for p := range processes {
					_, opts := process(m, fmt.Sprint("p", p))
					requests := &batch.Requests{}
					share := options.Option(func(c *options.Config) { c.Requests = requests })
					for i := range n / processes {
						l := spindle.New(nil, "locktable", fmt.Sprintf("lock-%d-%d", p, i), opts, share, spindle.WithSharedRequests())
						ctx, stop := context.WithCancel(context.Background())
						all, done, stops = append(all, l), append(done, make(chan error, 1)), append(stops, stop)
						require.NoError(t, l.Run(ctx, done[len(done)-1]))
						time.Sleep(apart)
					}
				}
				time.Sleep(3 * lease)
			})
			sent, costs := m.over(3 * lease)
			held := 0
			for _, l := range all {
				if ok, _ := l.HasLock(); ok {
					held++
				}
			}
			t.Logf("%d locks in %d processes, %d held: %s; %d KiB each", n, processes, held, costs, bytes>>10)
			assert.Equal(t, n, held)
			each = append(each, sent/float64(n))
			for _, stop := range stops {
				stop()
				time.Sleep(apart)
			}
			for _, d := range done {
				<-d
			}
			time.Sleep(time.Hour)
		})
	}
	growth(t, "what a lock sends", each[0], each[1])
}

// A waiter's requests and the gap between two holders do not grow with the number of waiters.
func TestAThousandWaitersOfOneMutex(t *testing.T) {
	const hold = 2 * time.Second
	var each, idle []float64
	for _, n := range sizes(1_000, 10) {
		fleet.Bubble(t, func(t *testing.T) {
			m := newMeter()
			ctx, stop := context.WithCancel(context.Background())
			var all sync.WaitGroup
			var turns, holders, gaps atomic.Int64
			var left atomic.Pointer[time.Time] // when the last turn ended
			for i := range n {
				_, opts := process(m, fmt.Sprint("p", i))
				of := lock.New(nil, "locktable", "mutex", opts)
				all.Go(func() {
					for ctx.Err() == nil {
						if of.Lock(ctx) != nil {
							continue
						}
						assert.EqualValues(t, 1, holders.Add(1))
						if last := left.Load(); last != nil {
							gaps.Add(int64(time.Since(*last)))
							turns.Add(1)
						}
						time.Sleep(hold)
						now := time.Now()
						left.Store(&now)
						holders.Add(-1)
						_ = of.Unlock(ctx)
					}
				})
			}
			time.Sleep(6 * lease)
			gaps.Store(0)
			turns.Store(0)
			a, costs := m.over(20 * lease)
			a /= float64(n)
			gap := time.Duration(gaps.Load() / turns.Load())
			t.Logf("%d waiters, holding for %v: %.2f requests a lease each, %s; %d turns, idle between two: %v", n, hold, a, costs, turns.Load(), gap)
			each, idle = append(each, a), append(idle, gap.Seconds())
			stop()
			all.Wait()
			time.Sleep(time.Hour)
		})
	}
	growth(t, "what a waiter sends", each[0], each[1])
	assert.Less(t, idle[1], 1.5*idle[0], "the time between two holders, which chance changes by a tenth")
}

// What a member sends does not grow with the number of members and partitions, and the group is whole a lease after a
// tenth of its members have died.
func TestAGroupOfThreeHundredMembers(t *testing.T) {
	var each []float64
	for _, members := range sizes(300, 10) {
		partitions := members * 20_000 / 300
		fleet.Bubble(t, func(t *testing.T) {
			m := newMeter()
			ctx, stop := context.WithCancel(context.Background())
			var groups []*group.Group
			var links []*memstore.Link
			var done []chan error
			held := func() (n int) {
				for _, g := range groups {
					n += len(g.Held())
				}
				return n
			}
			until := func(limit time.Duration) time.Duration {
				start := time.Now()
				for synctest.Wait(); held() < partitions; synctest.Wait() {
					require.Less(t, time.Since(start), limit, "%d of %d partitions are held", held(), partitions)
					time.Sleep(lease / 20)
				}
				return time.Since(start)
			}
			var whole time.Duration
			bytes := memory(t, members, func() {
				for i := range members {
					link, opts := process(m, fmt.Sprint("p", i))
					g := group.New(nil, "locktable", "group", group.Numbered(partitions), opts,
						group.WithWork(func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil }))
					d := make(chan error, 1)
					require.NoError(t, g.Run(ctx, d))
					groups, links, done = append(groups, g), append(links, link), append(done, d)
				}
				whole = until(20 * lease)
			})
			time.Sleep(3 * lease)
			a, costs := m.over(3 * lease)
			a /= float64(members)
			for _, link := range links[:members/10] {
				link.Cut()
			}
			time.Sleep(lease) // the dead stop by themselves
			again := lease + until(20*lease)
			t.Logf("%d members, %d partitions: whole after %.1f leases, %.2f requests a lease each, %s; %d KiB each; whole again %.1f leases after a tenth of them were cut off",
				members, partitions, whole.Seconds()/lease.Seconds(), a, costs, bytes>>10, again.Seconds()/lease.Seconds())
			each = append(each, a)
			for _, link := range links {
				link.Mend()
			}
			stop()
			for _, d := range done {
				<-d
			}
			time.Sleep(time.Hour)
		})
	}
	growth(t, "what a member sends", each[0], each[1])
}

// In an instance over several regions, a candidate sends no more than in one region, and a crash takes a lease and a few
// round trips.
func TestAnElectorOverSeveralRegions(t *testing.T) {
	fleet.Bubble(t, func(t *testing.T) {
		m := overRegions()
		e := startElectors(t, m, 100, nil)
		time.Sleep(3 * lease)
		_, costs := m.over(3 * lease)
		var longest time.Duration
		for range 10 {
			longest = max(longest, e.vacancy(t))
			time.Sleep(2 * lease)
		}
		t.Logf("100 processes: %s; without a leader after a cut: at most %v", costs, longest)
		assert.Less(t, longest, lease+lease/50+10*60*time.Millisecond)
		e.end()
	})
}
