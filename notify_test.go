package spindle_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// readings is a connection to the table that counts reads.
type readings struct {
	table.Store
	n *atomic.Int64
}

func (r readings) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	r.n.Add(1)
	return r.Store.Read(ctx, step, bound, keys)
}

// A leader that stops tells its followers, so one of them leads a few round trips later. Followers that are answered poll
// about once a lease.
func TestFollowersAreToldThatTheirLeaderHasStopped(t *testing.T) {
	const lease = 4 * time.Second
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint("handover ", handover), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, net := memstore.NewLocking(&memstore.Store{}), spindletest.NewNetwork()
				var reads atomic.Int64
				var mu sync.Mutex
				var gaps []time.Duration
				var freed time.Time
				stop, stops := func() {}, map[string]func(){}
				ctx, cancel := context.WithCancel(context.Background())
				lead := func(id string) func(context.Context, spindle.Term) {
					return func(ctx context.Context, _ spindle.Term) {
						mu.Lock()
						if !freed.IsZero() {
							gaps = append(gaps, time.Since(freed))
						}
						stop = stops[id]
						mu.Unlock()
						<-ctx.Done()
						mu.Lock()
						freed = time.Now()
						mu.Unlock()
					}
				}
				start := func(id string) {
					told, _ := net.Process()
					opts := []spindle.Option{told, quiet, spindle.WithLease(lease), spindle.WithID(id), spindle.WithLeader(lead(id)),
						options.Option(func(c *options.Config) { c.Store, c.Process, c.Handover = readings{store, &reads}, id, handover })}
					ctx, end := context.WithCancel(ctx)
					mu.Lock()
					stops[id] = end
					mu.Unlock()
					spindle.New(nil, "locks", "e", opts...).Run(ctx, make(chan error, 1))
				}
				for i := range 5 {
					start(fmt.Sprint("first ", i))
					time.Sleep(lease)
				}
				reads.Store(0)
				time.Sleep(20 * lease)
				own := 0.0
				if handover {
					own = 1 // of the leader, which looks for requests
				}
				assert.LessOrEqual(t, float64(reads.Load())/20-own, 4*1.35)
				assert.Less(t, net.Sent(), 5*25*10)
				for i := range 10 {
					start(fmt.Sprint("later ", i))
					time.Sleep(2 * lease)
					mu.Lock()
					end := stop
					mu.Unlock()
					end()
					time.Sleep(2 * lease)
				}
				mu.Lock()
				assert.Len(t, gaps, 10)
				assert.LessOrEqual(t, slices.Max(gaps), lease/50, "a release, a message, a poll, a claim and its confirmation")
				mu.Unlock()
				cancel()
				time.Sleep(time.Minute)
			})
		})
	}
}

// Followers that are answered poll only about once a lease. All of them nevertheless learn that their leader is leaving while it still
// works, so one of them becomes its successor, which leads at once even if the message about the release is lost.
func TestFollowersAreToldThatTheirLeaderIsLeaving(t *testing.T) {
	const lease = 4 * time.Second
	synctest.Test(t, func(t *testing.T) {
		store, net := memstore.NewLocking(&memstore.Store{}), spindletest.NewNetwork()
		var mu sync.Mutex
		heard := map[string]time.Time{}
		ctx, cancel := context.WithCancel(context.Background())
		start := func(id string) *spindle.Lock {
			told, _ := net.Process()
			l := spindle.New(nil, "locks", "e", told, quiet, spindle.WithLease(lease), spindle.WithID(id), spindle.WithHandover(),
				options.Option(func(c *options.Config) { c.Store, c.Process = store, id }),
				spindle.WithObserver(func(e spindle.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == spindle.Leaving {
						heard[id] = time.Now()
					}
				}))
			require.NoError(t, l.Run(ctx, make(chan error, 1)))
			return l
		}
		leader := start("leader")
		_, err := leader.WaitElected(ctx)
		require.NoError(t, err)
		for i := range 12 {
			start(fmt.Sprint("follower ", i))
			time.Sleep(lease / 13)
		}
		time.Sleep(10 * lease)
		began := time.Now()
		require.NoError(t, leader.StepDown(ctx))
		mu.Lock()
		assert.Len(t, heard, 13)
		for id, at := range heard {
			assert.Less(t, at.Sub(began), lease/3+lease/100, id)
		}
		mu.Unlock()
		cancel()
		time.Sleep(time.Minute)
	})
}

// Whoever leads, or has stopped, asks nobody whether the leader is alive, and answers nobody else's questions after its end.
func TestWhoDoesNotFollowAnyMoreSendsNoMessages(t *testing.T) {
	for _, leads := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			net := spindletest.NewNetwork()
			start := func(id string) *fleet.Machine { told, _ := net.Process(); return b.Start(id, told) }
			a, c := start("a"), start("c")
			time.Sleep(5 * fleet.Lease)
			before := net.Sent()
			assert.Greater(t, before, 10, "a follower asks")
			first, second := c, a
			if leads {
				first, second = a, c
			}
			b.End(first)
			time.Sleep(5 * fleet.Lease)
			assert.True(t, second.Has())
			before = net.Sent()
			time.Sleep(5 * fleet.Lease)
			assert.Equal(t, before, net.Sent())
			b.End(second)
			time.Sleep(5 * fleet.Lease)
			assert.Equal(t, before, net.Sent())
		})
	}
}

// Two processes with sockets of their own.
func TestNotificationsArriveByUDP(t *testing.T) {
	fake, reader := spindletest.NewFake(t), sdk.NewManualReader()
	meters := sdk.NewMeterProvider(sdk.WithReader(reader))
	var mutexes []*lock.Mutex
	for i := range 2 {
		n, err := spindle.ListenNotifications("127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(n.Close)
		p := fake.Process(fmt.Sprint("p", i))
		mutexes = append(mutexes, lock.New(p.Client, p.Table, "m", p.Option(), quiet, spindle.WithNotifier(n), spindle.WithMeterProvider(meters)))
	}
	require.NoError(t, mutexes[0].Lock(t.Context()))
	got := make(chan error)
	go func() { got <- mutexes[1].Lock(t.Context()) }()
	received := func(result string) (n int64) {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "spindle.notifications.received" {
					for _, p := range sum.DataPoints {
						if v, _ := p.Attributes.Value("result"); v.AsString() == result {
							n += p.Value
						}
					}
				}
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return received("valid") >= 2 }, time.Minute, 10*time.Millisecond, "a question and its answer")
	require.NoError(t, mutexes[0].Unlock(t.Context()))
	require.NoError(t, <-got)
	require.NoError(t, mutexes[1].Unlock(t.Context()))
	assert.Zero(t, received("unsigned")+received("malformed"))
}

func TestWhatIsWrongWithANotifierIsSaidAtOnce(t *testing.T) {
	for addr, says := range map[string]string{"nonsense": "is not an IP address with a port", "host:7700": "is not an IP address with a port", "224.0.0.1:7700": "is not an IP address with a port",
		"203.0.113.7:7700": "choose an address of this machine and a free port"} {
		_, err := spindle.ListenNotifications(addr)
		assert.ErrorContains(t, err, says, addr)
	}
	a, err := spindle.ListenNotifications("127.0.0.1:0")
	require.NoError(t, err)
	defer a.Close()
	b, err := spindle.ListenNotifications("127.0.0.1:0")
	require.NoError(t, err)
	b.Close()
	b.Close()
	// A Notifier has its port until it is closed, and no longer. The kernel gives ports below 32768 only to programs that ask for them.
	var addr string
	var first *spindle.Notifier
	for port := 10_000 + os.Getpid()%20_000; first == nil; port++ {
		require.Less(t, port, 32_768, "no port is free")
		addr = fmt.Sprint("127.0.0.1:", port)
		first, _ = spindle.ListenNotifications(addr)
	}
	_, err = spindle.ListenNotifications(addr)
	assert.Error(t, err)
	first.Close()
	second, err := spindle.ListenNotifications(addr)
	require.NoError(t, err)
	second.Close()
	fake := spindletest.NewFake(t).Process("p")
	assert.ErrorContains(t, spindle.New(nil, fake.Table, "e", fake.Option(), spindle.WithNotifier(nil)).Err(), "ListenNotifications")
	assert.ErrorContains(t, spindle.New(nil, fake.Table, "e", fake.Option(), spindle.WithNotifier(a), spindle.WithNotifier(b)).Err(), "given twice")
	assert.NoError(t, spindle.New(nil, fake.Table, "e", fake.Option(), spindle.WithNotifier(a), spindle.WithNotifier(a)).Err(), "twice the same")
	m := lock.New(nil, fake.Table, "m", fake.Option(), quiet, spindle.WithNotifier(b))
	require.NoError(t, m.Lock(t.Context()), "a Notifier that is closed does no harm")
	require.NoError(t, m.Unlock(t.Context()))
}

// Nothing that a program or a person sees has the address or the key that the rows have.
func TestTheAddressAndTheKeyOfANotifierAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, net := spindletest.NewFake(t), spindletest.NewNetwork()
		p, told := fake.Process("p"), spindle.LockOption(nil)
		told, _ = net.Process()
		ctx, stop := context.WithCancel(context.Background())
		var logged bytes.Buffer
		log := spindle.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
		l := spindle.New(nil, p.Table, "e", p.Option(), log, told)
		ended := make(chan error, 1)
		require.NoError(t, l.Run(ctx, ended))
		_, err := l.WaitElected(ctx)
		require.NoError(t, err)
		leader, err := l.Leader(ctx)
		require.NoError(t, err)
		assert.NotContains(t, fmt.Sprintf("%+v", leader), "10.0.0.")
		stop()
		<-ended
		assert.Contains(t, logged.String(), "elected")
		assert.NotContains(t, logged.String(), "10.0.0.")
	})
}
