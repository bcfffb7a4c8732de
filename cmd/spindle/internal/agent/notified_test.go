package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// notified runs a test in virtual time. The agent's requests take 5 ms. Without a network, it does not notify.
func notified(t *testing.T, net *spindletest.Network, test func(*bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *Config) {
			if net != nil {
				option, _ := net.Process()
				c.Notified = option.(options.Option)
			}
		})
		b.serve()
		b.before(func(string) { time.Sleep(5 * time.Millisecond) })
		test(b)
		b.ends()
	})
}

// calls returns how many requests the agent has sent since the last call, without heartbeats.
func (b *bed) calls() (n int) {
	for step, sent := range b.link.Counts() {
		if step != "heartbeat" {
			n += sent
		}
	}
	return n
}

// other returns the lock of another process.
func (b *bed) other(net *spindletest.Network) *lock.Mutex {
	opts := []lock.Option{options.Option(func(c *options.Config) { c.Store = b.store })}
	if net != nil {
		option, _ := net.Process()
		opts = append(opts, option.(options.Option))
	}
	return lock.New(nil, "locktable", "m", opts...)
}

// Programs of one agent wake each other, although nothing leaves the process: the next one holds the lock as soon as it is
// released and claimed, and nobody polls because of a message for nothing.
func TestProgramsOfOneAgentTakeTurnsWithoutADatagram(t *testing.T) {
	net := spindletest.NewNetwork()
	notified(t, net, func(b *bed) {
		const turns = 20
		hold := b.asks("a", "POST /v1/locks?name=m")
		held := hold.reads("held")
		var waited time.Duration
		b.calls()
		for i := range turns {
			next := b.asks([]string{"b", "a"}[i%2], "POST /v1/locks?name=m")
			time.Sleep(3 * time.Second)
			began := time.Now()
			status, _ := b.call("x", "POST /v1/holds/"+held.Hold+"/release")
			require.Equal(t, 200, status)
			hold.Close()
			hold, held = next, next.reads("held")
			waited += time.Since(began)
		}
		assert.LessOrEqual(t, b.calls(), 6*turns, "two polls, a ticket, a claim, its confirmation, a release")
		assert.Less(t, waited/turns, 25*time.Millisecond, "the release, a poll, the claim and its confirmation")
		assert.Zero(t, net.Sent())
	})
}

// A program that waits for the lock of another process costs the agent about two requests a lease, and the program gets the lock a
// poll, a claim and a confirmation after it is free.
func TestAWaitingHoldCostsNextToNothing(t *testing.T) {
	const leases, lease = 20, 10 * time.Second
	for _, c := range []struct {
		request string
		net     *spindletest.Network
		most    float64
	}{
		{"POST /v1/locks?name=m", spindletest.NewNetwork(), 2.6},
		{"POST /v1/elections?name=m", spindletest.NewNetwork(), 1.3},
		{"POST /v1/locks?name=m", nil, 25},
		{"POST /v1/elections?name=m", nil, 25},
	} {
		notified(t, c.net, func(b *bed) {
			other := b.other(c.net)
			require.NoError(t, other.Lock(context.Background()))
			waits := b.asks("a", c.request)
			time.Sleep(2 * lease)
			b.calls()
			time.Sleep(leases * lease)
			sent := float64(b.calls()) / leases
			freed := time.Now()
			require.NoError(t, other.Unlock(context.Background()))
			waits.reads("held")
			t.Logf("%s: notified %v, %.1f requests a lease, held %v after the release", c.request, c.net != nil, sent, time.Since(freed))
			assert.LessOrEqual(t, sent, c.most)
			if c.net != nil {
				assert.Less(t, time.Since(freed), 30*time.Millisecond)
			}
		})
	}
}
