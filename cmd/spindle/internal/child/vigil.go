package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// A Reason says why a watchdog acts.
type Reason int

// The reasons.
const (
	Told Reason = iota // the parent called Finish
	Dead               // the parent has exited
	Late               // the parent has missed its deadline
)

// An Act is the argument of a watchdog's action, which the watchdog calls after it has killed the group.
type Act struct {
	Why    Reason
	Report func(error) bool // sends an error to the parent, and reports whether that was possible
	Gone   func() bool      // reports whether the watched group has certainly exited
}

const watchdogName = "spindle-watch"

// Watch runs in the watchdog process and reads orders from standard input. When the parent orders it to act, or exits,
// Watch acts, closes the files that it got from the parent, and returns. If the parent misses its deadline, Watch acts
// but keeps watching, because the parent may still be running. Watch may then act again, after another order.
func Watch(action func(Act)) {
	rename(watchdogName) // the default would be the last part of /proc/self/exe
	orders := linesOf(os.Stdin)
	replies, kept := inherited()
	v := vigil{action: action, replies: replies}
	defer func() {
		for _, f := range kept {
			_ = f.Close()
		}
		_ = order(replies, "done\n")
		_ = replies.Close()
	}()
	clock := elect.SystemClock{}
	var wall int64 // the deadline as a wall-clock time
	var left time.Duration
	acted := false // since the last order
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
				_, v.leader, _ = strings.Cut(strings.TrimPrefix(order, "watch "), " ")
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
		pause := time.Second // the longest pause, because timers do not advance while a machine is suspended
		if !acted {
			pause = min(max(remaining(clock, since, left, wall), 0), pause)
		}
		over.Reset(pause)
	}
}

// linesOf returns a channel of the lines that arrive.
func linesOf(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// vigil is the process group that a watchdog watches, and its action.
type vigil struct {
	group   int    // or 0
	leader  string // the start time of the group's leader; see born
	action  func(Act)
	replies *os.File
}

func (v *vigil) act(why Reason) {
	if !v.strange() {
		signalGroup(v.group, os.Kill)
	}
	_ = order(v.replies, "begun\n")
	v.action(Act{why, func(err error) bool {
		return why == Told && order(v.replies, "failed %.1000q\n", err.Error()) == nil
	}, v.gone})
}

// strange reports whether the group's id now certainly belongs to a different group.
func (v *vigil) strange() bool {
	now := born(v.group)
	return now != "" && v.leader != "" && now != v.leader
}

// gone reports whether the group has certainly exited. Even after the kill, processes may still be running for a while.
func (v *vigil) gone() bool { return v.group != 0 && groupGone(v.group) }

func remaining(clock elect.Clock, since elect.Instant, left time.Duration, wall int64) time.Duration {
	now := clock.Now()
	return min(left-now.Since(since), time.Duration(wall-now.Wall))
}
