// Package child runs programs that must not outlive this process. Each program runs in its own process group, which is
// killed as a whole.
//
//   - child.go: a child, from its start until its group has been killed
//   - gate.go: the gate that holds a program back until its watchdog knows the process
//   - leash.go: the connection between a child and its watchdog
//   - state_*.go: whether a program is running, was stopped, or has exited
//   - terminal_*.go: which process group has the terminal
//   - family.go, orphans_*.go: processes that a program leaves behind outside its group
//   - again.go: starting this program again
//   - watchdog.go: a process that acts if this process is killed, or stopped for too long
//   - watch.go: the code that runs in the watchdog process
//   - lockfile_*.go: a file that only one process on a machine can hold at a time
//   - group_*.go, death_*.go, proc_*.go: code for each operating system
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

// The exit codes for programs that can't be started, as in a shell.
const (
	CannotRun = 126
	NotFound  = 127
)

// A StartError reports that a program could not be started.
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
		hint := "check that it is in PATH"
		switch {
		case exists(err):
			hint = `the interpreter that its first line ("#!...") names may be missing`
		case strings.ContainsAny(name, " \t\n&|;<>()$`*?~'\""):
			hint = "it is not run by a shell. Pass the program and each of its arguments separately, or use a shell: sh -c " + shellQuote(name)
		}
		return &StartError{NotFound, fmt.Errorf("%s: command not found: %s", name, hint)}
	}
	return &StartError{CannotRun, fmt.Errorf("%s can't be run: %w", name, err)}
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

// A Child is a program that was started, with its process group.
type Child struct {
	cmd   *exec.Cmd
	pid   int
	leave bool // if the program exits by itself, the rest of its group keeps running
	whole bool // processes that have left its group are killed when it exits
	leash leash

	stopped atomic.Pointer[os.Signal] // the signal that stopped the program, or nil
	changed chan struct{}
	done    chan struct{}
	code    int
	strays  int
	spared  int
}

// Start starts a program with this process's standard files and the given environment. As in a shell, the exit code of
// a program that a signal ended is 128 plus the signal's number.
//
// On Linux, the kernel kills the program when this process exits for any reason. With Watched, the watchdog also kills
// the program's whole group, on any Unix.
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

// live runs the child from start to exit. It stays on one thread, because the kernel treats the exit of the thread that
// forked a child as the exit of the parent process.
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
	if !c.leave { // kill the processes that the program left behind
		c.Kill()
		if c.whole {
			c.strays, c.spared = endOrphans(c.Pid())
		}
	}
	callOff()
	c.leash.drop()
	close(c.done)
}

// begin returns once the program is running and its watchdog knows the process, or once the watchdog's deadline has
// passed.
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
		c.Kill() // the process may have been stopped behind the gate
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

// Done returns a channel that is closed when the child has exited and the rest of its group has been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code returns the exit code, once Done is closed.
func (c *Child) Code() int { return c.code }

// Strays returns the number of processes that had left the group and were killed when the child exited. It is valid
// once Done is closed. Such processes are found only on Linux, with the option Whole.
func (c *Child) Strays() int { return c.strays }

// Spared returns the number of processes that the child left behind and that are still running because they belong to
// other users. It is valid once Done is closed. Such processes are found only on Linux, with the option Whole.
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

// Kill kills the whole group immediately.
func (c *Child) Kill() { killGroup(c.Pid()) }

// Apart gives the child an empty standard input.
func Apart(c *Child) error {
	c.cmd.Stdin = nil
	return nil
}

// Leaving lets the child's background processes outlive the child.
func Leaving(c *Child) error {
	c.leave = true
	return nil
}

// An Option changes the way in which a child is run.
type Option func(*Child) error

// Whole also kills processes that have left the child's group, and processes that other children left behind, when the
// child exits. It has an effect only on Linux.
func Whole(c *Child) error {
	c.whole = true
	return nil
}
