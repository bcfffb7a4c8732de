package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// watchdog is a process that kills a process group when its pipe is closed, which only the end of this process
// does, or when nothing came through the pipe for too long. It has a session of its own, so that whatever ends or stops
// this process or its group does not end or stop the watchdog.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startWatchdog(left time.Duration, args []string) (*watchdog, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("can't start the watchdog: %w", err)
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // which stays the same if the file is replaced
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("can't start the watchdog: %w", err)
	}
	defer in.Close()
	w := &watchdog{cmd: exec.Command(self, args...), pipe: out}
	w.cmd.Args[0] = os.Args[0]
	w.cmd.Stdin = in
	w.cmd.Dir = "/"
	if err := ownSession(w.cmd); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("can't start the watchdog: %w", err)
	}
	w.allow(left)
	return w, nil
}

func (w *watchdog) watch(group int) { w.order("watch %d\n", group) }

// allow gives the deadline by the wall clock too: the line may be read late.
func (w *watchdog) allow(left time.Duration) {
	w.order("allow %d %d\n", left, time.Now().Add(left).UnixNano())
}

func (w *watchdog) dismiss() {
	w.order("dismiss\n")
	_ = w.pipe.Close()
	go func() { _ = w.cmd.Wait() }()
}

// order writes a line. If nobody reads it, the watchdog is gone. That must not block this process: the child
// goes on without a watchdog.
func (w *watchdog) order(format string, args ...any) {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = fmt.Fprintf(w.pipe, format, args...)
}

// Watchdog is the work of the watchdog's process: it reads its orders from in.
func Watchdog(in io.Reader) {
	orders := make(chan string)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	clock := elect.SystemClock{}
	var group int
	var wall int64 // the deadline by the wall clock
	var left time.Duration
	since := clock.Now()
	over := time.NewTimer(time.Hour)
	for {
		select {
		case order, ok := <-orders:
			switch {
			case !ok:
				killGroup(group)
				return
			case order == "dismiss":
				return
			}
			if n, _ := fmt.Sscanf(order, "watch %d", &group); n == 1 {
				break
			}
			if n, _ := fmt.Sscanf(order, "allow %d %d", &left, &wall); n == 2 {
				since = clock.Now()
			}
		case <-over.C:
			if remaining(clock, since, left, wall) <= 0 {
				killGroup(group)
				left, wall = time.Hour, clock.Now().Wall+int64(time.Hour) // until it is dismissed
				since = clock.Now()
			}
		}
		// At most a second: timers stand still while a machine is suspended.
		over.Reset(min(max(remaining(clock, since, left, wall), 0), time.Second))
	}
}

func remaining(clock elect.Clock, since elect.Instant, left time.Duration, wall int64) time.Duration {
	now := clock.Now()
	return min(left-now.Since(since), time.Duration(wall-now.Wall))
}
