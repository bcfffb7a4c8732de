// Package child runs programs that must not outlive their purpose: each in its own process group, which is killed as a
// whole.
//
//   - child.go: a child, from its start to the end of its group
//   - gate.go: a program begins only once its watchdog knows its process
//   - state_*.go: whether a program runs, was stopped, or has ended
//   - terminal_*.go: which process group has the terminal
//   - family.go, orphans_*.go: what a program leaves behind outside its group
//   - again.go: this program, run again
//   - watchdog.go: a process that acts if this process is killed, or stopped for too long
//   - watch.go: the watchdog's own work: it kills the group, and then acts
//   - lockfile_*.go: a file that one process of a machine can hold at a time
//   - group_*.go, death_*.go, proc_*.go: what depends on the operating system
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// The exit codes of a shell for programs that can't be started.
const (
	CannotRun = 126
	NotFound  = 127
)

// A StartError says that a program could not be started.
type StartError struct {
	Code int // CannotRun or NotFound
	Err  error
}

// Error implements error.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap implements errors.
func (e *StartError) Unwrap() error { return e.Err }

// Find looks a program up in PATH, as a shell does.
func Find(name string) error {
	_, err := exec.LookPath(name)
	return startError(name, err)
}

func startError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		hint := "is it in PATH?"
		switch {
		case exists(err):
			hint = `is there what its first line, "#!...", names?`
		case strings.ContainsAny(name, " \t\n&|;<>()$`*?~'\""):
			hint = "no shell reads it. For one program, give its arguments one by one; for a shell's line: sh -c " + shellQuote(name)
		}
		return &StartError{NotFound, fmt.Errorf("%s: command not found: %s", name, hint)}
	}
	return &StartError{CannotRun, fmt.Errorf("%s: can't be run: %w", name, err)}
}

// exists reports whether the file that the error names exists.
func exists(err error) bool {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return false
	}
	_, err = os.Stat(of.Path)
	return err == nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// A Child is a program that runs, with its process group.
type Child struct {
	cmd   *exec.Cmd
	pid   int
	leave bool // when it ends by itself, the rest of its group runs on
	whole bool // processes that have left its group end with it
	leash leash

	stopped atomic.Pointer[os.Signal] // by which signal, or nil
	changed chan struct{}
	done    chan struct{}
	code    int
	strays  int
	spared  int
}

// Start starts a program with the standard files of this process, in that environment. Its exit code is as in a
// shell: 128 plus the number of the signal if a signal ended it.
//
// On Linux the kernel kills the program when this process ends, however it ends. With Watched, the watchdog then kills the
// whole group, on every Unix.
func Start(args, env []string, options ...Option) (*Child, error) {
	c := &Child{cmd: exec.Command(args[0], args[1:]...), changed: make(chan struct{}, 1), done: make(chan struct{})}
	c.cmd.Env = env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for _, o := range options {
		if err := o(c); err != nil {
			c.leash.drop()
			return nil, err
		}
	}
	err := ownGroup(c.cmd)
	if err == nil {
		started := make(chan error)
		go c.live(started)
		err = startError(args[0], <-started)
	}
	if err != nil {
		c.leash.drop()
		return nil, err
	}
	return c, nil
}

// live keeps its thread while the child lives: to the kernel, the parent ends when the thread that forked does.
func (c *Child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	callOff := func() {}
	if c.whole {
		callOff = adopt() // before the program begins
	}
	err := c.begin()
	started <- err
	if err != nil {
		callOff()
		return
	}
	c.await()
	disown(c.Pid())
	if !c.leave { // what it left behind
		c.Kill()
		if c.whole {
			c.strays, c.spared = endOrphans(c.Pid())
		}
	}
	callOff()
	c.leash.drop()
	close(c.done)
}

// begin returns once the program runs, and its watchdog knows that, or once the program's time is over.
func (c *Child) begin() error {
	dog := c.leash.dog
	if dog == nil || c.cmd.Err != nil {
		return c.startOwn()
	}
	g, err := putBehind(c.cmd)
	if err != nil {
		return err
	}
	defer g.close()
	err = c.startOwn()
	g.started()
	if err != nil {
		return err
	}
	dog.watch(c.Pid())
	until := *dog.until.Load()
	if err := g.open(until); err != nil {
		_ = c.cmd.Wait()
		disown(c.Pid())
		return err
	}
	if time.Until(until) <= 0 {
		c.Kill() // it may have been stopped behind the gate
	}
	return nil
}

func (c *Child) startOwn() error {
	err := startOwn(c.cmd)
	if err == nil {
		c.pid = c.cmd.Process.Pid
	}
	return err
}

// Pid returns the child's process id, which is also its group's id.
func (c *Child) Pid() int { return c.pid }

// Done returns a channel that is closed when the child has ended and the rest of its group has been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code returns the exit code, once Done is closed.
func (c *Child) Code() int { return c.code }

// Strays returns, once Done is closed, how many processes had left the group and were killed when the child ended. Only
// Linux, with Whole, finds them.
func (c *Child) Strays() int { return c.strays }

// Spared returns, once Done is closed, how many processes that the child left behind run on because they belong to other
// users. Only Linux, with Whole, finds them.
func (c *Child) Spared() int { return c.spared }

// Changed returns a channel that has a value after the program was stopped or continued.
func (c *Child) Changed() <-chan struct{} { return c.changed }

// Stopped returns the signal that stopped the program, or nil.
func (c *Child) Stopped() os.Signal {
	if s := c.stopped.Load(); s != nil {
		return *s
	}
	return nil
}

// Signal sends a signal to the whole group.
func (c *Child) Signal(s os.Signal) { signalGroup(c.Pid(), s) }

// Kill kills the whole group at once.
func (c *Child) Kill() { killGroup(c.Pid()) }

// Apart gives the child an empty standard input.
func Apart(c *Child) error {
	c.cmd.Stdin = nil
	return nil
}

// Leaving lets the child's background processes outlive it.
func Leaving(c *Child) error {
	c.leave = true
	return nil
}

// An Option changes how a child is run.
type Option func(*Child) error

// Whole also kills, when the child ends, processes that have left its group. Only Linux can do that. It kills processes
// that other children left behind, too.
func Whole(c *Child) error {
	c.whole = true
	return nil
}
