package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrGone means that a watchdog exited before its action was done, for example because it was killed.
var ErrGone = errors.New("the watchdog exited before it was done")

// A Watchdog is a separate process that acts when its deadline passes, when this process exits, or when Finish is
// called. To act, it kills a process group and then runs an action; see Watch.
//
// The methods are safe for concurrent use, except that only one call of Finish may be in progress at a time.
type Watchdog struct {
	process *os.Process
	pipe    *os.File
	begun   chan struct{}             // closed once the watchdog acts or has exited
	failed  chan error                // errors of the action; closed when the watchdog is done or has exited
	gone    chan struct{}             // closed when the watchdog is done or has exited
	done    bool                      // its action is done; set before failed is closed
	until   atomic.Pointer[time.Time] // the deadline
	told    bool                      // Finish has sent its order
}

// StartWatchdog starts this program a second time, as a watchdog process, with the given environment and arguments.
// When the program gets these arguments, it must call Watch. The parameter until is the watchdog's deadline, which
// Allow can extend. The watchdog inherits the files and keeps them open until it is done.
func StartWatchdog(until time.Time, env, args []string, files ...*os.File) (w *Watchdog, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("can't start the watchdog: %w", err)
		}
	}()
	self, err := itself()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, args...)
	if err := ownSession(c); err != nil { // so that signals to this process's group don't reach the watchdog
		return nil, err
	}
	in, orders, replies, out, err := pipes()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer out.Close()
	c.Args[0], c.Env, c.ExtraFiles = os.Args[0], env, append([]*os.File{out}, files...)
	c.Stdin, c.Stdout, c.Stderr = in, os.Stdout, os.Stderr
	if _, err = startOwn(c); err != nil {
		_ = orders.Close()
		_ = replies.Close()
		return nil, err
	}
	w = &Watchdog{process: c.Process, pipe: orders, begun: make(chan struct{}), failed: make(chan error), gone: make(chan struct{})}
	go func() {
		w.listen(replies)
		_ = c.Wait()
		disown(c.Process.Pid)
	}()
	w.Allow(until)
	return w, nil
}

// pipes opens two pipes between this process and a new process. The first pipe carries data to the new process, and the
// second pipe carries data from it. Of the returned files, the first and the last are for the new process.
func pipes() (in, to, from, out *os.File, err error) {
	if in, to, err = os.Pipe(); err != nil {
		return nil, nil, nil, nil, err
	}
	if from, out, err = os.Pipe(); err != nil {
		_, _ = in.Close(), to.Close()
		return nil, nil, nil, nil, err
	}
	return in, to, from, out, nil
}

// listen receives the watchdog's replies.
func (w *Watchdog) listen(replies io.ReadCloser) {
	defer replies.Close()
	defer close(w.gone)
	defer close(w.failed)
	begun := sync.OnceFunc(func() { close(w.begun) })
	defer begun()
	for lines := bufio.NewScanner(replies); lines.Scan(); begun() {
		if lines.Text() == "done" {
			w.done = true
		} else if text, ok := strings.CutPrefix(lines.Text(), "failed "); ok {
			if plain, err := strconv.Unquote(text); err == nil {
				text = plain
			}
			w.failed <- errors.New(text)
		}
	}
}

// Allow sets the watchdog's deadline. Later calls can extend it. The deadline is a time rather than a duration, because
// a duration would start to count too late if this process was stopped before the call. Allow also sends the deadline
// as a wall-clock time, because the watchdog may be slow to read the order.
func (w *Watchdog) Allow(until time.Time) {
	w.until.Store(&until)
	_ = order(w.pipe, "allow %d %d\n", time.Until(until), until.UnixNano())
	if w.process != nil {
		goOn(w.process) // a stopped watchdog would notice neither this deadline nor the exit of this process
	}
}

// Gone returns a channel that is closed once the watchdog is done or has exited.
func (w *Watchdog) Gone() <-chan struct{} { return w.gone }

// Begun returns a channel that is closed once the watchdog has begun to act or has exited.
func (w *Watchdog) Begun() <-chan struct{} { return w.begun }

// Finish tells the watchdog to act now, and waits until the action is done. If an attempt fails, Finish returns the
// error, and the watchdog tries again. Call Finish again to wait for the next attempt. If Finish returns ErrGone, there
// will be no further attempt. If ctx ends, Finish returns, but the watchdog continues.
func (w *Watchdog) Finish(ctx context.Context) error {
	if !w.told {
		w.told = order(w.pipe, "finish\n") == nil
	}
	goOn(w.process)
	select {
	case err, ok := <-w.failed:
		if ok {
			return err
		}
		_ = w.pipe.Close()
		if !w.done {
			return ErrGone
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the watchdog has not finished yet: %w", ctx.Err())
	}
}

// watch makes the watchdog watch a group, whose leader started at the given time. The watchdog can't read that time by
// itself, because another process may have the leader's id when the order arrives.
func (w *Watchdog) watch(group int, leader string) { _ = order(w.pipe, "watch %d %s\n", group, leader) }

// dismiss kills the watchdog, even if it is stopped. The caller makes sure that the watchdog has nothing left to kill.
func (w *Watchdog) dismiss() {
	_ = w.process.Kill()
	_ = w.pipe.Close()
}

// order writes a line to a pipe. If the reader has exited or the pipe is full, order returns an error instead of
// blocking. A write deadline would not work, because it can pass before the write is attempted.
func order(pipe *os.File, format string, args ...any) error {
	return writeNow(pipe, fmt.Appendf(nil, format, args...))
}

// itself returns the path of this program's executable.
func itself() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // the same program, even if the file has been replaced
	}
	return os.Executable()
}
