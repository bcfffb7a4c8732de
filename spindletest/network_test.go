package spindletest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/spindletest"
)

// A network delivers a message after its delay, to the process that it is for, unless it was told to lose it. Lost messages count as sent.
// Otherwise, a test of what happens without messages would pass although it has them.
func TestANetworkDeliversWhatItIsNotToldToLose(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(net *spindletest.Network, asks, answers func())
		trip  time.Duration // of the question and its answer; 0: there is no answer
		sent  int
	}{
		"no fault":                    {func(*spindletest.Network, func(), func()) {}, time.Millisecond, 2},
		"another delay":               {func(net *spindletest.Network, _, _ func()) { net.Delay(2 * time.Millisecond) }, 4 * time.Millisecond, 2},
		"all are lost":                {func(net *spindletest.Network, _, _ func()) { net.Lose(1) }, 0, 1},
		"none is lost again":          {func(net *spindletest.Network, _, _ func()) { net.Lose(1); net.Lose(0) }, time.Millisecond, 2},
		"who asks is cut off":         {func(_ *spindletest.Network, asks, _ func()) { asks() }, 0, 1},
		"who would answer is cut off": {func(_ *spindletest.Network, _, answers func()) { answers() }, 0, 1},
	} {
		for _, others := range []int{0, 255} {
			t.Run(fmt.Sprint(name, ", ", others, " others"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					net, place := spindletest.NewNetwork(), notify.PlaceOf("db", "locktable")
					process := func() (*notify.Notifier, func()) {
						option, silence := net.Process()
						var config options.Config
						option.(options.Option)(&config)
						return config.Notifier, silence
					}
					holder, silent := process()
					for range others {
						process()
					}
					waiter, cutOff := process()
					answered := time.Duration(0)
					began := time.Now()
					book := holder.Hold(notify.Term{Place: place, Name: "m", Token: 1, Lease: time.Minute, Alive: func() bool {
						answered = 2 * time.Since(began)
						return true
					}})
					c.fault(net, cutOff, silent)
					ear := waiter.Listen(place, time.Minute)
					ear.Learn(notify.Seen{Follower: true, Locks: []notify.Lock{{Name: "m", Token: 1, Held: true, Contact: holder.Contact(place, table.LeaseKey("m", 1)), Lease: time.Minute}}}, elect.SystemClock{}.Now())
					time.Sleep(4*time.Millisecond + time.Microsecond)
					synctest.Wait()
					assert.Equal(t, c.trip, answered)
					assert.Equal(t, c.sent, net.Sent())
					book.Free(false)
					ear.Close()
					time.Sleep(time.Hour)
				})
			})
		}
	}
}
