package child

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// A Reason is why a watchdog acts.
type Reason int

// The reasons.
const (
	Told Reason = iota // by Finish
	Dead               // the process that started it is
	Late               // it let the deadline pass
)

// A WatchdogAction is what a watchdog does after it has killed the group. It returns when that is done. After Late it may be
// called again.
type WatchdogAction func(Act)

// An Act is what a watchdog action gets.
type Act struct {
	Why    Reason
	Report func(error) bool // sends an error to the parent, and reports whether it got through
	Gone   func() bool      // reports whether the watched group is certainly gone
}

const watchdogName = "spindle-watch"

// Watch does the work of the watchdog's process, which reads its orders from its standard input. It returns when it has
// acted. After Late it continues, because its parent may continue too: it acts again when its parent orders that or is
// dead.
func Watch(action WatchdogAction) {
	rename(watchdogName) // or it would have the name of the link by which it was found
	orders := make(chan string)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	v := vigil{action: action, replies: inherited()}
	clock := elect.SystemClock{}
	var wall int64 // the deadline by the wall clock
	var left time.Duration
	acted := false // on what it knows by now
	since := clock.Now()
	over := time.NewTimer(time.Hour)
	for {
		select {
		case order, ok := <-orders:
			switch {
			case !ok:
				v.act(Dead)
				return
			case order == "finish":
				v.act(Told)
				return
			}
			if n, _ := fmt.Sscanf(order, "watch %d", &v.group); n == 1 {
				v.leader = born(v.group)
				acted = acted && v.group == 0
				break
			}
			if n, _ := fmt.Sscanf(order, "allow %d %d", &left, &wall); n == 2 {
				since, acted = clock.Now(), false
			}
		case <-over.C:
			if !acted && remaining(clock, since, left, wall) <= 0 {
				acted = true
				v.act(Late)
			}
		}
		pause := time.Second // at most: timers stand still while a machine is suspended
		if !acted {
			pause = min(max(remaining(clock, since, left, wall), 0), pause)
		}
		over.Reset(pause)
	}
}

// vigil is what a watchdog watches.
type vigil struct {
	group   int    // 0: none
	leader  string // of the group: see born
	action  WatchdogAction
	replies *os.File
}

func (v *vigil) act(why Reason) {
	if !v.strange() {
		killGroup(v.group)
	}
	_ = order(v.replies, "begun\n")
	v.action(Act{why, func(err error) bool {
		return why == Told && order(v.replies, "failed %.1000q\n", err.Error()) == nil
	}, v.gone})
}

// strange reports whether another group has the number by now.
func (v *vigil) strange() bool {
	now := born(v.group)
	return now != "" && now != v.leader
}

// gone reports whether the group is certainly gone: a killed process may not have ended, or not have been reaped.
func (v *vigil) gone() bool { return v.group != 0 && !v.strange() && groupGone(v.group) }

func remaining(clock elect.Clock, since elect.Instant, left time.Duration, wall int64) time.Duration {
	now := clock.Now()
	return min(left-now.Since(since), time.Duration(wall-now.Wall))
}
