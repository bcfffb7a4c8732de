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

// A Duty is what a watchdog does after it has killed the group. It returns when that is done. It gives tell what
// went wrong; tell reports whether that was heard. After Late the duty may be called again.
type Duty func(why Reason, tell func(error) bool)

// Watch is the work of the watchdog's process, which reads its orders from its standard input. It returns when
// it is dismissed or has acted. After Late it goes on, since the other process may be back: it acts once more
// when it is told to, or when that process is dead.
func Watch(duty Duty) {
	orders := make(chan string)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	v := vigil{duty: duty, replies: inherited()}
	clock := elect.SystemClock{}
	var wall int64 // the deadline by the wall clock
	var left time.Duration
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
			case order == "dismiss":
				return
			}
			if n, _ := fmt.Sscanf(order, "watch %d", &v.group); n == 1 {
				break
			}
			if n, _ := fmt.Sscanf(order, "allow %d %d", &left, &wall); n == 2 {
				since = clock.Now()
			}
		case <-over.C:
			if remaining(clock, since, left, wall) <= 0 {
				v.act(Late)
				left, wall = time.Hour, clock.Now().Wall+int64(time.Hour) // until there is an order
				since = clock.Now()
			}
		}
		// At most a second: timers stand still while a machine is suspended.
		over.Reset(min(max(remaining(clock, since, left, wall), 0), time.Second))
	}
}

// vigil is what a watchdog has to do.
type vigil struct {
	group   int
	duty    Duty
	replies *os.File
}

func (v *vigil) act(why Reason) {
	killGroup(v.group)
	_ = order(v.replies, "begun\n")
	if v.duty == nil {
		return
	}
	v.duty(why, func(err error) bool {
		return why == Told && order(v.replies, "failed %.1000q\n", err.Error()) == nil
	})
}

func remaining(clock elect.Clock, since elect.Instant, left time.Duration, wall int64) time.Duration {
	now := clock.Now()
	return min(left-now.Since(since), time.Duration(wall-now.Wall))
}
