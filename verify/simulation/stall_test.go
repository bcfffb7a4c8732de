package simulation

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	machines "github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// Virtual time advances only while every goroutine waits for time, a channel or a condition. It stops forever if a
// goroutine waits for a mutex whose owner sleeps, or never waits. A long run is different, because virtual time still
// advances, however slowly.

const (
	look     = time.Second // of real time
	patience = 30          // looks without an advance: starved machines take a few
)

// watched runs f, and calls stuck if virtual time has not advanced for several checks in a row. It counts checks
// instead of measuring time, so that a pause of this whole process counts as one check.
func watched(virtual *atomic.Int64, look time.Duration, stuck, f func()) {
	ticker, over := time.NewTicker(look), make(chan struct{})
	defer ticker.Stop()
	defer close(over)
	go func() {
		if stands(virtual, ticker.C, over) {
			stuck()
		}
	}()
	f()
}

// stands returns true once virtual time has not advanced for several checks, and false if the run ends first.
func stands(virtual *atomic.Int64, looks <-chan time.Time, over <-chan struct{}) bool {
	for last, still := virtual.Load(), 0; still < patience; still++ {
		select {
		case <-over:
			return false
		case <-looks:
		}
		if now := virtual.Load(); now != last {
			last, still = now, -1
		}
	}
	return true
}

// fail ends this process, because the test itself waits for virtual time.
func fail(at time.Duration, about string) {
	fmt.Fprintf(os.Stderr, "virtual time has stood still at %v for %d s: a goroutine waits for a mutex whose owner sleeps, or never waits.\n%s\n\n%s\n", at, patience, about, stacks())
	os.Exit(1)
}

// stuck is fail for a run of a seed.
func (k suite) stuck(w *world) {
	about := k.replay(w.seed)
	if w.mu.TryLock() {
		about += "\n" + w.history()
	}
	fail(time.Duration(w.now.Load()), about)
}

// stacks returns the stacks of all goroutines in virtual time.
func stacks() string {
	for text := make([]byte, 1<<20); ; text = make([]byte, 2*len(text)) {
		n := runtime.Stack(text, true)
		if n == len(text) {
			continue
		}
		var here []string
		for one := range strings.SplitSeq(string(text[:n]), "\n\n") {
			if head, _, _ := strings.Cut(one, "\n"); strings.Contains(head, "synctest bubble") {
				here = append(here, one)
			}
		}
		return strings.Join(here, "\n\n")
	}
}

func TestAStopOfVirtualTimeIsFoundWithTheGoroutineThatStopsIt(t *testing.T) {
	var mu sync.Mutex
	var found string
	mu.Lock()
	stuck := func() {
		found = stacks()
		mu.Unlock()
	}
	watched(&atomic.Int64{}, 10*time.Millisecond, stuck, func() {
		synctest.Test(t, func(*testing.T) {
			go waitForMutex(&mu)
			time.Sleep(time.Hour)
		})
	})
	assert.Contains(t, found, "[sync.Mutex.Lock, synctest bubble")
	assert.Contains(t, found, "simulation.waitForMutex(")
	assert.NotContains(t, found, "testing.(*M).Run", "of a goroutine in real time")
}

func waitForMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

func TestALongRunIsNotAStopOfVirtualTime(t *testing.T) {
	var virtual atomic.Int64
	looks, over, stood := make(chan time.Time), make(chan struct{}), make(chan bool)
	go func() { stood <- stands(&virtual, looks, over) }()
	for range 10 * patience {
		for range patience - 3 { // a look may see what comes right after it
			looks <- time.Time{}
		}
		virtual.Add(1)
		looks <- time.Time{}
	}
	close(over)
	assert.False(t, <-stood)
}

// slowClock is the clock of a machine on which a reading can take a while.
type slowClock struct {
	elect.Clock
	slow atomic.Bool
	read atomic.Int64
}

func (c *slowClock) Now() elect.Instant {
	now := c.Clock.Now()
	d := seeded(uint64(c.read.Add(1)))
	if c.slow.Load() {
		time.Sleep(d.spread(time.Millisecond, time.Second))
	}
	return now
}

func TestALeaderThatIsStoppedWhileItSaysThatItLeavesLosesTheLockInTime(t *testing.T) {
	clock := &slowClock{}
	stuck := func() { fail(0, t.Name()) }
	watched(&clock.read, look, stuck, func() {
		for early := range 200 {
			machines.InVirtualTime(t, func(b *machines.Fleet) {
				a := b.Start("a", options.Option(func(c *options.Config) { clock.Clock, c.Clock = c.Clock, clock }))
				a.Link.Cut()
				start, limit := time.Now(), elect.Limit(machines.Lease)
				time.Sleep(limit - time.Duration(early)*5*time.Millisecond)
				clock.slow.Store(true)
				stepped := make(chan error, 1)
				go func() { stepped <- a.StepDown(context.Background()) }()
				b.Until(machines.Lease, func() bool { return a.Seen.Last().Kind == spindle.Lost })
				assert.Error(t, <-stepped)
				assert.Less(t, time.Since(start), limit+5*time.Second)
				clock.slow.Store(false)
				b.End(a)
			})
		}
	})
}
