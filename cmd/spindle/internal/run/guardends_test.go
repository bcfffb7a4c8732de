//go:build unix

package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ofLease gives a guard another lease, which is not three times --renew.
func ofLease(lease time.Duration) func(*guarding) {
	return func(g *guarding) { g.config.Lease, g.candidate.LeaseRecord.Lease = lease, lease }
}

// A guard sends its heartbeats --renew apart, whatever the lease is, and tells its watchdog the new deadline after each of them,
// even while the service is still being activated. Otherwise the watchdog would deactivate a healthy service.
func TestEachHeartbeatOfAGuardExtendsTheDeadlineOfItsWatchdog(t *testing.T) {
	for _, lease := range []time.Duration{2 * renew, 3 * renew, 10 * renew, 60 * renew} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a := w.site("a", ofLease(lease))
			a.turnOn = 10 * renew
			var beats []time.Time
			a.After(func(step string) {
				if step == "heartbeat" {
					a.set(func() { beats = append(beats, time.Now()) })
				}
			})
			a.begin()
			w.until("a")
			time.Sleep(20 * renew)
			synctest.Wait()
			a.set(func() {
				require.GreaterOrEqual(t, len(beats), 18, "lease %v", lease)
				assert.Equal(t, beats, a.extended, "lease %v", lease)
				for i := range beats[1:] {
					assert.InDelta(t, renew, beats[i+1].Sub(beats[i]), float64(renew/10), "lease %v", lease)
				}
			})
			a.end()
		})
	}
}

// Each step of a guard takes the time of its own flag, whatever the lease is: --renew sets the pace of its polls, checks and retries,
// --confirm limits a deactivation, --activation an activation, and only a check on standby may take a lease.
func TestEachStepOfAGuardHasTheTimeOfItsOwnFlag(t *testing.T) {
	const long = 60 * renew
	about := func(t *testing.T, least, most, d time.Duration, what string) {
		t.Helper()
		assert.True(t, d >= least-renew/20 && d <= most+renew/20, "%s took %v", what, d)
	}
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.site("a", ofLease(long))
		a.turnOn, a.checkTakes, a.sick = 50*renew, 50*renew, true
		a.begin()
		time.Sleep(50*renew + renew/2)
		a.set(func() { a.sick, a.checkTakes = false, 0 })
		about(t, 0, 2*renew, w.until("a"), "the next check on standby")
		time.Sleep(49 * renew)
		assert.Equal(t, activating, a.guard.now().Why)
		time.Sleep(2 * renew)
		synctest.Wait()
		assert.Equal(t, working, a.guard.now().Why)

		b := w.start("b", ofLease(long))
		time.Sleep(10 * renew)
		a.set(func() { a.turnOff = time.Hour })
		a.stop()
		began := time.Now()
		for a.guard.now().Why != stuck {
			time.Sleep(time.Millisecond)
		}
		about(t, 2*renew*19/20, 2*renew*19/20, time.Since(began), "a deactivation that hangs")
		a.set(func() { a.turnOff, a.broken = 9*renew/5, 3 }) // just in time, each time
		time.Sleep(4*(renew/2+9*renew/5) - renew/20)
		assert.Equal(t, "a", w.who(), "three retries fail")
		time.Sleep(renew / 10)
		require.NotEqual(t, "a", w.who(), "the fourth succeeds")
		<-a.done
		w.until("b")

		c := w.site("c", ofLease(long))
		c.checkTakes = 50 * renew
		c.begin()
		time.Sleep(49 * renew)
		_, checks := c.seen()
		assert.Len(t, checks, 1, "a check on standby may take a lease")
		c.set(func() { c.checkTakes = 0 })
		time.Sleep(5 * renew)
		b.end()
		about(t, 0, renew, w.until("c"), "the next poll")
		c.end()
	})
}

// A guard that is stopped ends as fast as its state allows. Only an active service is announced first, for a third of the
// lease, so that another machine can take over without a pause. A service that is still being activated has nothing to hand over.
func TestAGuardThatIsStoppedEndsAsFastAsItsStateAllows(t *testing.T) {
	const announcement = guardLease / 3
	for name, r := range map[string]struct {
		before    func(w *guardWorld, a *guardSite)
		ends      time.Duration // how long a deactivation takes from then on
		announced bool
		left      bool // the lock is left to expire
		standby   bool // another guard keeps the lock
	}{
		"while it deactivates at first": {before: func(_ *guardWorld, a *guardSite) { a.turnOff = renew; a.begin(); time.Sleep(renew / 2) }, ends: renew / 2},
		"on standby": {before: func(w *guardWorld, a *guardSite) {
			w.start("other")
			w.until("other")
			a.begin()
			time.Sleep(guardLease)
		}, standby: true},
		"while it waits for the last holder": {before: func(w *guardWorld, a *guardSite) {
			other := w.start("other")
			w.until("other")
			a.begin()
			time.Sleep(guardLease)
			other.Cut()
			w.gone("other")
			time.Sleep(renew / 2)
			synctest.Wait()
			require.Equal(w.t, confirming, a.guard.now().Why)
		}, left: true},
		"while it activates": {before: func(w *guardWorld, a *guardSite) { a.turnOn = time.Minute; a.begin(); w.until("a"); time.Sleep(renew) }},
		"while it is active": {before: func(w *guardWorld, a *guardSite) { a.begin(); w.until("a"); time.Sleep(renew) }, announced: true},
		"while it deactivates": {before: func(w *guardWorld, a *guardSite) {
			a.begin()
			w.until("a")
			a.set(func() { a.sick, a.turnOff = true, renew })
			for running := ""; running == ""; a.set(func() { running = a.command }) {
				time.Sleep(renew / 100)
			}
		}, ends: renew},
	} {
		for _, handover := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " with --handover"}[handover], func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *guardWorld) {
					a := w.site("a", func(g *guarding) {
						if handover {
							handsOver(g)
						}
					})
					r.before(w, a)
					began := time.Now()
					a.stop()
					<-a.done
					want := r.ends
					if handover && r.announced {
						want += announcement
					}
					assert.InDelta(t, want, time.Since(began), float64(renew/50))
					assert.NotEqual(t, "a", w.who())
					if !r.standby {
						assert.Equal(t, !r.left, w.store.Rows()["lock"].Heartbeat.IsZero(), "the lock is released, unless another service may be active")
					}
				})
			})
		}
	}
}
