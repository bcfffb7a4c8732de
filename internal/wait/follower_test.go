package wait

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// talk has two processes that notify each other: a holder that answers, and a waiter.
type talk struct {
	config options.Config         // the waiter's
	view   elect.LockView         // what its polls show
	asked  atomic.Pointer[[]byte] // its last message
}

func talking(t *testing.T, lease time.Duration, test func(*talk)) {
	synctest.Test(t, func(t *testing.T) {
		var own, holder *notify.Notifier
		at, to, c := netip.MustParseAddrPort("10.0.0.1:7700"), netip.MustParseAddrPort("10.0.0.2:7700"), &talk{}
		own = notify.New(at, elect.SystemClock{}, func(b []byte, _ netip.AddrPort) {
			c.asked.Store(&b)
			time.AfterFunc(time.Millisecond, func() { holder.Receive(b, at) })
		})
		holder = notify.New(to, elect.SystemClock{}, func(b []byte, _ netip.AddrPort) {
			time.AfterFunc(time.Millisecond, func() { own.Receive(b, to) })
		})
		book := holder.Hold(notify.Term{Name: "e", Token: 1, Lease: lease, Alive: func() bool { return true }})
		c.config.Lease, c.config.Clock, c.config.Notifier, c.config.Rank = lease, elect.SystemClock{}, own, 2
		record := &table.LeaseRecord{Lease: lease, Notify: holder.Contact("", table.LeaseKey("e", 1))}
		c.view = elect.LockView{Observation: table.Observation{Name: "e", Token: 1, LeaseRecord: record}, FreeIn: time.Second}
		test(c)
		own.Close()
		book.Free(false)
		holder.Close()
	})
}

// rests returns how long a follower rests after a step, and the rank in its last question.
func (c *talk) rests(step elect.Step) (time.Duration, byte) {
	f := Follower{Config: &c.config, Ear: c.config.Ear()}
	began := time.Now()
	step.Seen, step.Latest = []elect.LockView{c.view}, time.Hour
	f.Rest(context.Background(), step, c.config.Clock.Now(), 0)
	f.Ear.Close()
	return time.Since(began), (*c.asked.Load())[3]
}

// A follower whose leader answers polls once in nine tenths of a lease, so that Seen and Wait keep what they promise. An explicit
// interval stays the longest. A candidate that leaves the lock to others keeps its pace, too, and tells the leader, so that the
// others are told first.
func TestHowLongAFollowerRests(t *testing.T) {
	const lease, pause = 10 * time.Second, 2 * time.Second
	talking(t, lease, func(c *talk) {
		for range 20 {
			rest, rank := c.rests(elect.Step{Pause: pause})
			assert.LessOrEqual(t, rest, lease*9/10)
			assert.GreaterOrEqual(t, rest, lease*8/10)
			assert.EqualValues(t, 2, rank)
		}
		rest, rank := c.rests(elect.Step{Pause: pause, CoolingDown: true})
		assert.Equal(t, pause, rest)
		assert.EqualValues(t, table.MaxRank, rank)
		c.config.Poll = pause
		rest, _ = c.rests(elect.Step{Pause: pause})
		assert.Equal(t, pause, rest)
	})
}

// The first waiter of a lock with a long lease polls every quarter of the lease, even if the holder answers: it may hang otherwise.
func TestTheFirstWaiterForALongLeasePollsMoreOften(t *testing.T) {
	for lease, longest := range map[time.Duration]time.Duration{40 * time.Second: 40 * time.Second, 70 * time.Second: 20 * time.Second, time.Hour: time.Hour / 4} {
		talking(t, lease, func(c *talk) {
			p := New(&c.config, table.Table{}, "e")
			p.Ear, p.seen, p.Own = c.config.Ear(), nil, table.Ticket{Queue: "e", Time: 1, Nonce: "a"}
			began := time.Now()
			p.Ear.Learn(notify.Seen{Locks: []notify.Lock{lockOf(c.view)}, Ticket: p.Own}, c.config.Clock.Now())
			p.sleep(context.Background(), time.Second, 24*time.Hour)
			p.Ear.Close()
			require.LessOrEqual(t, time.Since(began), longest)
			require.GreaterOrEqual(t, time.Since(began), longest*9/10-time.Second)
		})
	}
}
