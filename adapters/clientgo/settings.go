package clientgo

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
)

// limits are the settings of the spindle lock, which limit the elector's settings.
type limits spindle.Settings

// slack returns how late a timer may fire on a busy machine.
func (l limits) slack() time.Duration { return l.Lease / 20 }

// promise returns the longest time that client-go may lead after a successful Update.
func (l limits) promise(c leaderelection.LeaderElectionConfig) time.Duration {
	return c.RetryPeriod + c.RenewDeadline + l.slack()
}

// room returns the upper limit of RetryPeriod + RenewDeadline. Up to this limit, every Update succeeds as long as
// heartbeats are acknowledged within a twentieth of the lease.
func (l limits) room() time.Duration {
	return (l.Lease - l.Lease/100 - l.Heartbeat - l.Heartbeat/20 - l.Lease/20 - l.slack()).Truncate(time.Millisecond)
}

// defaults returns settings that divide the room between RenewDeadline and RetryPeriod.
func (l limits) defaults() (leaderelection.LeaderElectionConfig, error) {
	room := l.room()
	if room < l.Lease/10 {
		return leaderelection.LeaderElectionConfig{}, fmt.Errorf("with a heartbeat every %v and a lease of %v, RenewDeadline + RetryPeriod could be at most %v, which is too short; pass at most %v to spindle.WithHeartbeat, or omit that option",
			l.Heartbeat, l.Lease, room, (l.Lease / 3).Truncate(time.Millisecond))
	}
	return leaderelection.LeaderElectionConfig{
		LeaseDuration: l.Lease,
		RenewDeadline: (room * 4 / 5).Truncate(time.Millisecond),
		RetryPeriod:   (room / 5).Truncate(time.Millisecond),
	}, nil
}

func (l limits) check(c leaderelection.LeaderElectionConfig) error {
	switch {
	case c.Coordinated:
		return errors.New("don't set Coordinated: it works only with Kubernetes Leases, for which the API server chooses the leader")
	case c.RetryPeriod <= 0 || c.RenewDeadline <= 0 || c.LeaseDuration <= 0:
		return fmt.Errorf("LeaseDuration (%v), RenewDeadline (%v) and RetryPeriod (%v) must be positive; use the settings from Config", c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	case c.RetryPeriod+c.RenewDeadline > l.room():
		return fmt.Errorf("RenewDeadline (%v) + RetryPeriod (%v) is %v, but must be at most %v with a lease of %v and a heartbeat every %v; use the settings from Config, or spindle.WithLease(%v) without WithHeartbeat",
			c.RenewDeadline, c.RetryPeriod, c.RetryPeriod+c.RenewDeadline, l.room(), l.Lease, l.Heartbeat.Truncate(time.Millisecond), leaseFor(c.RetryPeriod+c.RenewDeadline))
	}
	return nil
}

// leaseFor returns a lease in whole seconds that is long enough for a RetryPeriod and a RenewDeadline that add up to
// room. With the default heartbeat, the room is 0.54 of the lease.
func leaseFor(room time.Duration) time.Duration {
	return (room*100/54 + time.Second).Truncate(time.Second)
}

// seconds returns the only part of an elector's settings that its records show.
func seconds(c leaderelection.LeaderElectionConfig) int { return int(c.LeaseDuration / time.Second) }
