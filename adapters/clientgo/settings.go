package clientgo

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// slack returns the time that a busy machine may be late to run what is due.
func (l *Lock) slack() time.Duration { return l.settings.Lease / 20 }

// promise returns how long client-go leads on after a successful Update, at most.
func (l *Lock) promise(c leaderelection.LeaderElectionConfig) time.Duration {
	return c.RetryPeriod + c.RenewDeadline + l.slack()
}

// room returns what a RetryPeriod and a RenewDeadline may add up to, so that each Update succeeds between two heartbeats
// that are acknowledged within a twentieth of the lease.
func (l *Lock) room() time.Duration {
	lease, heartbeat := l.settings.Lease, l.settings.Heartbeat
	return (lease - lease/100 - heartbeat - heartbeat/20 - lease/20 - l.slack()).Truncate(time.Millisecond)
}

// defaults returns settings that divide the room.
func (l *Lock) defaults() (leaderelection.LeaderElectionConfig, error) {
	room := l.room()
	if room < l.settings.Lease/10 {
		return leaderelection.LeaderElectionConfig{}, fmt.Errorf("a heartbeat each %v leaves client-go %v of a lease of %v to go on by itself: give spindle.WithHeartbeat(%v) or less, or leave it out",
			l.settings.Heartbeat, room, l.settings.Lease, (l.settings.Lease / 3).Truncate(time.Millisecond))
	}
	return leaderelection.LeaderElectionConfig{
		LeaseDuration: l.settings.Lease,
		RenewDeadline: (room * 4 / 5).Truncate(time.Millisecond),
		RetryPeriod:   (room / 5).Truncate(time.Millisecond),
	}, nil
}

// Config returns a complete configuration for leaderelection.NewLeaderElector, with the callbacks. Its LeaseDuration is
// spindle's lease, its RenewDeadline and RetryPeriod are 0.43 and 0.1 of that (with the default heartbeat) or Accept's, and
// ReleaseOnCancel is set. You may change its Name, WatchDog and ReleaseOnCancel, but nothing else: give other settings to
// Accept.
//
// The ctx of OnStartedLeading has the token of its term (TokenOf), and also ends as Context's does. The spindle lock is not
// released until that function has returned, or a lease after its ctx has ended. If the term is over before the function
// could be called, it is not called.
func (l *Lock) Config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	if started := callbacks.OnStartedLeading; started != nil {
		callbacks.OnStartedLeading = l.guarded(started)
	}
	l.mu.Lock()
	c := l.timing
	l.mu.Unlock()
	c.Lock, c.Callbacks, c.ReleaseOnCancel, c.Name = l, callbacks, true, l.name
	return c
}

// Accept checks your own settings, and then makes l answer an elector with them. If they don't fit, the error gives the
// numbers, and settings that would do. Call it before the elector runs, with the elector's own configuration. For
// controller-runtime, make c from LeaseDuration, RenewDeadline and RetryPeriod of its manager's options.
//
// Without Accept, and without the settings of Config, an elector is refused if its LeaseDuration differs, in seconds,
// from what is expected, and, once it leads, if its RenewDeadline is longer. Its RetryPeriod can't be seen.
func (l *Lock) Accept(c leaderelection.LeaderElectionConfig) error {
	if err := l.check(c); err != nil {
		return l.wrap(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timing = leaderelection.LeaderElectionConfig{LeaseDuration: c.LeaseDuration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod}
	l.foreign = nil
	return nil
}

func (l *Lock) check(c leaderelection.LeaderElectionConfig) error {
	switch {
	case c.Lock != nil && c.Lock != l:
		return fmt.Errorf("the Lock of these settings is another, %s: give each its own", c.Lock.Describe())
	case c.Coordinated:
		return errors.New("election with Coordinated is for Leases of Kubernetes, where the API server chooses the leader: leave it out")
	case c.RetryPeriod <= 0 || c.RenewDeadline <= 0 || c.LeaseDuration <= 0:
		return fmt.Errorf("LeaseDuration (%v), RenewDeadline (%v) and RetryPeriod (%v) must be positive: take those of Config", c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	case c.RetryPeriod+c.RenewDeadline > l.room():
		return fmt.Errorf("RenewDeadline (%v) + RetryPeriod (%v) is %v, which client-go goes on leading for by itself, and may be at most %v with a lease of %v and a heartbeat each %v: take the settings of Config, or give spindle.WithLease(%v) and no WithHeartbeat",
			c.RenewDeadline, c.RetryPeriod, c.RetryPeriod+c.RenewDeadline, l.room(), l.settings.Lease, l.settings.Heartbeat.Truncate(time.Millisecond), leaseFor(c.RetryPeriod+c.RenewDeadline))
	}
	return nil
}

// leaseFor returns a lease, in whole seconds, that has that room with the default heartbeat: 0.54 of it.
func leaseFor(room time.Duration) time.Duration {
	return (room*100/54 + time.Second).Truncate(time.Second)
}

// seconds returns what an elector's records show of its settings.
func seconds(c leaderelection.LeaderElectionConfig) int { return int(c.LeaseDuration / time.Second) }
