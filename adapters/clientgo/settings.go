package clientgo

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// slack returns how late a timer may fire on a busy machine.
func (l *Lock) slack() time.Duration { return l.settings.Lease / 20 }

// promise returns the longest time that client-go may lead after a successful Update.
func (l *Lock) promise(c leaderelection.LeaderElectionConfig) time.Duration {
	return c.RetryPeriod + c.RenewDeadline + l.slack()
}

// room returns the maximum of RetryPeriod + RenewDeadline. Up to this maximum, every Update between two heartbeats
// succeeds, provided that heartbeats are acknowledged within a twentieth of the lease.
func (l *Lock) room() time.Duration {
	lease, heartbeat := l.settings.Lease, l.settings.Heartbeat
	return (lease - lease/100 - heartbeat - heartbeat/20 - lease/20 - l.slack()).Truncate(time.Millisecond)
}

// defaults returns settings that divide the room between RenewDeadline and RetryPeriod.
func (l *Lock) defaults() (leaderelection.LeaderElectionConfig, error) {
	room := l.room()
	if room < l.settings.Lease/10 {
		return leaderelection.LeaderElectionConfig{}, fmt.Errorf("with a heartbeat every %v, client-go has only %v of a lease of %v to lead without a renewal; use spindle.WithHeartbeat(%v) or less, or omit that option",
			l.settings.Heartbeat, room, l.settings.Lease, (l.settings.Lease / 3).Truncate(time.Millisecond))
	}
	return leaderelection.LeaderElectionConfig{
		LeaseDuration: l.settings.Lease,
		RenewDeadline: (room * 4 / 5).Truncate(time.Millisecond),
		RetryPeriod:   (room / 5).Truncate(time.Millisecond),
	}, nil
}

// Config returns a complete configuration for leaderelection.NewLeaderElector, with the given callbacks. The
// LeaseDuration is spindle's lease. With the default heartbeat, the RenewDeadline is about 43 % of the lease, and the
// RetryPeriod about 11 %. If you have passed your own settings to Accept, Config returns those instead. ReleaseOnCancel
// is set. You may change Name, WatchDog and ReleaseOnCancel, but pass all other changes to Accept.
//
// The ctx of OnStartedLeading contains the fencing token (see TokenOf), and ends under the same conditions as a ctx
// from Context. The spindle lock is not released until OnStartedLeading has returned, or until one lease after its ctx
// has ended. If the term ends before OnStartedLeading can be called, it is not called.
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

// Accept checks your own settings. If they are valid, l accepts an elector that uses them. Otherwise the error says
// what is wrong and suggests other settings. Call Accept with the elector's configuration before the elector runs. For
// controller-runtime, copy LeaseDuration, RenewDeadline and RetryPeriod from the manager's options to c.
//
// The elector must use either accepted settings or the settings from Config. It is rejected if its LeaseDuration, in
// whole seconds, is different. Once it leads, it is also rejected if its RenewDeadline is too long. Its RetryPeriod
// can't be checked.
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
		return fmt.Errorf("these settings are for a different Lock, %s; each elector needs its own Lock", c.Lock.Describe())
	case c.Coordinated:
		return errors.New("don't set Coordinated: it works only with Kubernetes Leases, for which the API server chooses the leader")
	case c.RetryPeriod <= 0 || c.RenewDeadline <= 0 || c.LeaseDuration <= 0:
		return fmt.Errorf("LeaseDuration (%v), RenewDeadline (%v) and RetryPeriod (%v) must be positive; use the settings from Config", c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	case c.RetryPeriod+c.RenewDeadline > l.room():
		return fmt.Errorf("RenewDeadline (%v) + RetryPeriod (%v) is %v, but must be at most %v with a lease of %v and a heartbeat every %v; use the settings from Config, or spindle.WithLease(%v) without WithHeartbeat",
			c.RenewDeadline, c.RetryPeriod, c.RetryPeriod+c.RenewDeadline, l.room(), l.settings.Lease, l.settings.Heartbeat.Truncate(time.Millisecond), leaseFor(c.RetryPeriod+c.RenewDeadline))
	}
	return nil
}

// leaseFor returns a lease, in whole seconds, that is long enough for the given room. With the default heartbeat, the
// room is 0.54 of the lease.
func leaseFor(room time.Duration) time.Duration {
	return (room*100/54 + time.Second).Truncate(time.Second)
}

// seconds returns the only part of an elector's settings that its records show.
func seconds(c leaderelection.LeaderElectionConfig) int { return int(c.LeaseDuration / time.Second) }
