package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrGone says that a watchdog ended before its action was done: somebody killed it.
var ErrGone = errors.New("the watchdog is gone")

// Watchdog is a process that acts when this process ends, which closes its pipe, or when its deadline passes. It kills a
// process group, and then does its action: see Watch. It has its own session, so that a signal to this process's group does
// not reach it. Its methods may be called from any goroutine, Finish from one at a time.
type Watchdog struct {
	cmd    *exec.Cmd
	pipe   *os.File
	ended  func() error              // waits for its end
	begun  chan struct{}             // closed once it acts, or is gone
	failed chan error                // what went wrong with its action; closed when it has ended
	gone   chan struct{}             // closed when it has ended
	until  atomic.Pointer[time.Time] // its deadline
	told   bool                      // to finish
}

// StartWatchdog runs this program again, with this environment and these arguments, which must make it call Watch. Its
// deadline is until, unless Allow extends it. The files stay open while the watchdog lives.
func StartWatchdog(until time.Time, env, args []string, files ...*os.File) (*Watchdog, error) {
	w, err := startWatchdog(env, args, files)
	if err != nil {
		return nil, fmt.Errorf("can't start the watchdog: %w", err)
	}
	w.Allow(until)
	return w, nil
}

func startWatchdog(env, args []string, files []*os.File) (*Watchdog, error) {
	self, err := itself()
	if err != nil {
		return nil, err
	}
	in, orders, replies, out, err := pipes()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer out.Close()
	w := &Watchdog{cmd: exec.Command(self, args...), pipe: orders, begun: make(chan struct{}), failed: make(chan error), gone: make(chan struct{})}
	w.ended = sync.OnceValue(func() error {
		defer disown(w.cmd.Process.Pid)
		return w.cmd.Wait()
	})
	w.cmd.Args[0], w.cmd.Env = os.Args[0], env
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = in, os.Stdout, os.Stderr
	w.cmd.ExtraFiles = append([]*os.File{out}, files...)
	err = ownSession(w.cmd)
	if err == nil {
		err = startOwn(w.cmd)
	}
	if err != nil {
		_ = orders.Close()
		_ = replies.Close()
		return nil, err
	}
	go w.listen(replies)
	return w, nil
}

// pipes opens two pipes to another process: it reads in and writes out; this process writes to and reads from.
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

func (w *Watchdog) listen(replies io.ReadCloser) {
	defer replies.Close()
	defer close(w.gone)
	defer close(w.failed)
	begun := sync.OnceFunc(func() { close(w.begun) })
	defer begun()
	for lines := bufio.NewScanner(replies); lines.Scan(); {
		begun()
		if text, ok := strings.CutPrefix(lines.Text(), "failed "); ok {
			if plain, err := strconv.Unquote(text); err == nil {
				text = plain
			}
			w.failed <- errors.New(text)
		}
	}
}

// Allow lets the watchdog act at that time, unless another call extends it before. It takes a time: a duration would begin
// again if this process was stopped before the call.
//
// It gives the deadline by the wall clock too: the line may be read late.
func (w *Watchdog) Allow(until time.Time) {
	w.until.Store(&until)
	_ = order(w.pipe, "allow %d %d\n", time.Until(until), until.UnixNano())
	if w.cmd != nil {
		goOn(w.cmd.Process) // or it would see neither this deadline nor the end of this process
	}
}

// Gone returns a channel that is closed once the watchdog has ended.
func (w *Watchdog) Gone() <-chan struct{} { return w.gone }

// Begun returns a channel that is closed once the watchdog has begun to act, or is gone.
func (w *Watchdog) Begun() <-chan struct{} { return w.begun }

// Finish makes the watchdog act now, and waits until its action is done and the watchdog has ended. An error is one
// attempt's: the watchdog tries again, and the next call of Finish waits for that. The end of ctx ends only the waiting.
// ErrGone means that there will be no other attempt.
func (w *Watchdog) Finish(ctx context.Context) error {
	if !w.told {
		w.told = order(w.pipe, "finish\n") == nil
	}
	goOn(w.cmd.Process)
	select {
	case err, ok := <-w.failed:
		if ok {
			return err
		}
		_ = w.pipe.Close()
		if err := w.ended(); err != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the watchdog is still at it: %w", ctx.Err())
	}
}

func (w *Watchdog) watch(group int) { _ = order(w.pipe, "watch %d\n", group) }

// dismiss ends the watchdog, even one that somebody has stopped: nothing is left that it could end.
func (w *Watchdog) dismiss() {
	_ = w.cmd.Process.Kill()
	_ = w.pipe.Close()
	go func() { _ = w.ended() }()
}

// order writes a line, or fails at once: if the reader is gone or stopped, that must not block the writer. A deadline
// for the write would not do: it can pass before the write is tried.
func order(pipe *os.File, format string, args ...any) error {
	return writeNow(pipe, fmt.Appendf(nil, format, args...))
}
