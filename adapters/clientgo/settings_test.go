package clientgo

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

var onTable = options.Option(func(c *options.Config) { c.Store = &memstore.Store{} })

func newLock(opts ...spindle.Option) (*Lock, error) {
	return New(nil, "locktable", "mylock", append(opts, onTable)...)
}

// Several goroutines may create Locks from one slice of options. If New wrote to the slice, one Lock could get the leader
// function of another.
func TestNewLeavesTheCallersOptionsAsTheyAre(t *testing.T) {
	opts := append(make([]spindle.Option, 0, 2), onTable)
	_, err := New(nil, "locktable", "mylock", opts...)
	require.NoError(t, err)
	assert.Nil(t, opts[:2][1])
}

// Whatever the lease, client-go takes the settings of Config, and they pass Accept.
func TestTheSettingsOfConfigFit(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, 15 * time.Second, time.Minute, 24 * time.Hour} {
		for _, heartbeat := range []time.Duration{lease / 20, lease / 3, lease * 2 / 3} {
			lock, err := newLock(spindle.WithLease(lease), spindle.WithHeartbeat(heartbeat))
			require.NoError(t, err)
			c := lock.Config(leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}})
			_, err = leaderelection.NewLeaderElector(c)
			require.NoError(t, err, lease)
			require.NoError(t, lock.Accept(c))
			assert.True(t, c.ReleaseOnCancel)
			assert.Equal(t, lease, c.LeaseDuration)
		}
	}
}

// The documentation names these numbers.
func TestTheDefaultSettings(t *testing.T) {
	lock, err := newLock()
	require.NoError(t, err)
	c := lock.Config(leaderelection.LeaderCallbacks{})
	assert.Equal(t, []time.Duration{4320 * time.Millisecond, 1080 * time.Millisecond, 10 * time.Second}, []time.Duration{c.RenewDeadline, c.RetryPeriod, c.LeaseDuration})
}

// controllers is the default of controller-runtime, and of many programs with client-go.
var controllers = leaderelection.LeaderElectionConfig{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// Settings with which client-go could outlast the lease are refused, and what the error proposes is accepted.
func TestSettingsThatOutlastTheLeaseAreRefused(t *testing.T) {
	lock, err := newLock()
	require.NoError(t, err)
	err = lock.Accept(controllers)
	require.EqualError(t, err, `clientgo: lock "mylock": RenewDeadline (10s) + RetryPeriod (2s) is 12s, but must be at most 5.4s with a lease of 10s and a heartbeat every 3.333s; use the settings from Config, or spindle.WithLease(23s) without WithHeartbeat`)
	assert.Equal(t, 10*time.Second, lock.Config(leaderelection.LeaderCallbacks{}).LeaseDuration, "a refusal changes nothing")

	lock, err = newLock(spindle.WithLease(23 * time.Second))
	require.NoError(t, err)
	require.NoError(t, lock.Accept(controllers))
	c := lock.Config(leaderelection.LeaderCallbacks{})
	assert.Equal(t, []time.Duration{15 * time.Second, 10 * time.Second, 2 * time.Second}, []time.Duration{c.LeaseDuration, c.RenewDeadline, c.RetryPeriod})

	lock, err = newLock(spindle.WithLease(22 * time.Second))
	require.NoError(t, err)
	require.Error(t, lock.Accept(controllers), "it is the least")
}

// Their LeaseDuration may happen to be what is expected. Then the first renewal tells.
func TestARenewDeadlineThatWasNotCheckedIsRefused(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a", spindle.WithLease(controllers.LeaseDuration))
		a.config.RenewDeadline, a.config.RetryPeriod = controllers.RenewDeadline, controllers.RetryPeriod
		require.Error(t, a.lock.Accept(a.config), "and it is run all the same")
		a.run()
		w.until(time.Second, a.isLeading)
		w.until(controllers.RenewDeadline+time.Second, a.hasEnded)
		_, _, err := a.lock.Get(context.Background())
		require.ErrorContains(t, err, "the elector has a RenewDeadline of 10s instead of 6.48s; pass its settings to Accept")
		w.until(controllers.LeaseDuration, func() bool { return a.lock.Spindle().Health() != nil })
	})
}

// Only a renewal's ctx shows an elector's RenewDeadline: the ctx of the first Update may have any deadline, such as a
// manager's own. A refused elector stays refused until Accept succeeds, and may lead again from then on.
func TestARefusedElectorIsRefusedUntilItsSettingsAreAccepted(t *testing.T) {
	for _, within := range []time.Duration{0, time.Second, 4320 * time.Millisecond, 4321 * time.Millisecond, time.Hour} {
		for _, renewal := range []bool{false, true} {
			inVirtualTime(t, func(w *world) {
				a := w.machine("a")
				update := func(within time.Duration) error {
					ctx := context.Background()
					if within != 0 {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, within)
						defer cancel()
					}
					return a.lock.Update(ctx, a.written())
				}
				a.get()
				if renewal {
					require.NoError(t, update(0))
				}
				err := update(within)
				require.Equal(t, renewal && within > a.config.RenewDeadline, err != nil, "%v, %v: %v", within, renewal, err)
				if err != nil {
					require.Equal(t, err, update(0))
					require.NoError(t, a.lock.Accept(a.config))
				}
				require.NoError(t, update(time.Second))
			})
		}
	}
}

// What client-go or this could not work with is refused, each with what is wrong.
func TestOtherSettingsThatAreRefused(t *testing.T) {
	lock, err := newLock()
	require.NoError(t, err)
	another, err := newLock()
	require.NoError(t, err)
	for want, change := range map[string]func(*leaderelection.LeaderElectionConfig){
		"these settings are for a different Lock": func(c *leaderelection.LeaderElectionConfig) { c.Lock = another },
		"only with Kubernetes Leases":             func(c *leaderelection.LeaderElectionConfig) { c.Coordinated = true },
		"RetryPeriod (0s) must be positive":       func(c *leaderelection.LeaderElectionConfig) { c.RetryPeriod = 0 },
		"RenewDeadline (-1s)":                     func(c *leaderelection.LeaderElectionConfig) { c.RenewDeadline = -time.Second },
		"LeaseDuration (0s)":                      func(c *leaderelection.LeaderElectionConfig) { c.LeaseDuration = 0 },
	} {
		c := lock.Config(leaderelection.LeaderCallbacks{})
		change(&c)
		require.ErrorContains(t, lock.Accept(c), want)
	}
}

// New says what is wrong, and not an elector's log.
func TestArgumentsThatAreRefused(t *testing.T) {
	_, err := newLock(spindle.WithHeartbeat(9 * time.Second))
	require.EqualError(t, err, `clientgo: lock "mylock": with a heartbeat every 9s and a lease of 10s, RenewDeadline + RetryPeriod could be at most -550ms, which is too short; pass at most 3.333s to spindle.WithHeartbeat, or omit that option`)
	_, err = newLock(spindle.WithLeader(func(context.Context, spindle.Term) {}))
	require.ErrorContains(t, err, "WithLeader is given twice")
	_, err = New(nil, "locktable", "mylock")
	require.ErrorContains(t, err, "the Spanner client is nil")
}

// The identity is the id that spindle shows, and the description names the lock.
func TestIdentity(t *testing.T) {
	lock, err := newLock(spindle.WithID("pod-7"))
	require.NoError(t, err)
	assert.Equal(t, "pod-7", lock.Identity())
	assert.Equal(t, "locktable/mylock", lock.Describe())
	lock, err = newLock()
	require.NoError(t, err)
	assert.NotEmpty(t, lock.Identity())
}

// An elector whose ctx has ended, and a record of another, are refused.
func TestUpdatesThatAreRefused(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		require.ErrorIs(t, a.lock.Update(context.Background(), a.written()), spindle.ErrNotLeader)
		_, _, err := a.lock.Get(context.Background())
		require.NoError(t, err)
		require.ErrorIs(t, a.lock.Update(ended(), a.written()), context.Canceled)
		r := a.written()
		r.HolderIdentity = "b"
		require.ErrorContains(t, a.lock.Update(context.Background(), r), `the record is for "b", but this process is "a"`)
		require.NoError(t, a.lock.Create(context.Background(), a.written()))
		a.link.Cut()
		w.until(lease, func() bool { err = a.lock.Update(context.Background(), a.written()); return err != nil })
		require.ErrorContains(t, err, "because heartbeats are not being acknowledged, but client-go could lead for up to 5.9s")
		_, age, _ := a.lock.Spindle().Seen()
		assert.Equal(t, lease-lease/100-5900*time.Millisecond, age, "until then, client-go stops before the local deadline")
		assert.True(t, a.holds())
	})
}
