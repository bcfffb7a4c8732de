// Package child runs programs that must not outlive this process. Each program gets its own process group, so that the
// program and its children can be killed together.
//
//   - child.go: starts a program, waits for it to exit, and kills the rest of its group
//   - gate.go: delays a program until its watchdog is watching
//   - leash.go: connects a child to its watchdog
//   - state_unix.go, report_*.go: find out when a program is stopped, is continued or exits
//   - terminal_unix.go: lends the terminal to a program
//   - orphans_linux.go: finds processes that a program left behind outside its group
//   - watchdog.go: a process that acts if this process is killed, or stopped for too long
//   - vigil.go: the code that runs in the watchdog process
//   - lockfile*.go: a file that only one process on a machine can hold at a time
//   - group_unix.go, proc_linux.go, notlinux.go, system_other.go: code that depends on the operating system
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// The exit codes for programs that can't be started, as in a shell.
const (
	CannotRun = 126
	NotFound  = 127
)

// Find looks a program up in PATH, as a shell does. If the program can't be run, the error is a *terminal.Exit.
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
			hint = `the interpreter named in the script's first line ("#!...") may be missing`
		case strings.ContainsAny(name, " \t\n&|;<>()$`*?~'\""):
			hint = "no shell interprets this name; pass the program and each of its arguments separately, or use sh -c " + shellQuote(name)
		}
		return &terminal.Exit{Code: NotFound, Err: fmt.Errorf("%s: command not found: %s", name, hint)}
	case slices.ContainsFunc(shortages, func(e error) bool { return errors.Is(err, e) }):
		return fmt.Errorf("%s can't be started at the moment: %w", name, err)
	}
	return &terminal.Exit{Code: CannotRun, Err: fmt.Errorf("%s can't be run: %w", name, err)}
}

// shortages are errors of a start that may succeed later. ETXTBSY means that another process is writing the program.
var shortages = []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY}

// exists reports whether the error names a file that exists.
func exists(err error) bool {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return false
	}
	_, err = os.Stat(of.Path)
	return err == nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// A Command is a program to start, with this process's standard output and error.
type Command struct {
	Args, Env []string
	Apart     bool // its standard input is empty; otherwise, it is this process's
	Aside     bool // its standard output is this process's standard error, because another program has the standard output
	Leaving   bool // its background processes may outlive it
	Whole     bool // its exit also kills processes that have left its group, and those that other programs have left behind meanwhile; only on Linux

	Dog *Watchdog // watches the program, and outlives it; or nil

	// Watch, if it is not nil, starts a watchdog for this program alone. Until returns the watchdog's deadline. Start
	// calls Until before it starts the watchdog, and again just before the program begins, because starting processes
	// can take a long time. After that, Allow can extend the deadline.
	Watch func(until time.Time) (*Watchdog, error)
	Until func() time.Time
}

// A Child is a program that was started, with its process group.
type Child struct {
	Command
	cmd   *exec.Cmd
	pid   int
	leash leash

	state   state
	changed chan struct{}
	done    chan struct{}
	code    int
	strays  int
	spared  int
}

// state is what the kernel has reported about a program.
type state struct {
	sync.Mutex
	stopped os.Signal // by which signal; nil: it is not stopped
	exited  bool      // the ids of the program and its group may have been reused
}

// Start starts a program. If a signal kills the program, its exit code is 128 plus the signal's number, as in a shell.
//
// On Linux, the kernel kills the program when this process exits, for whatever reason. On every Unix, the watchdog, if
// there is one, kills the program's whole group.
func Start(o Command) (*Child, error) {
	c := &Child{Command: o, cmd: exec.Command(o.Args[0], o.Args[1:]...), changed: make(chan struct{}, 1), done: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = o.Env, os.Stdout, os.Stderr
	if !o.Apart {
		c.cmd.Stdin = os.Stdin
	}
	if o.Aside {
		c.cmd.Stdout = os.Stderr
	}
	err := ownGroup(c.cmd)
	if c.leash.dog = o.Dog; err == nil && o.Watch != nil {
		c.leash.dog, err = o.Watch(o.Until())
	}
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go c.live(started)
	if err := startError(o.Args[0], <-started); err != nil {
		c.unleash()
		return nil, err
	}
	return c, nil
}

// live runs the child from start to exit. It stays locked to one OS thread, because Linux kills the child when the
// thread that started it exits, even if the rest of this process is still running.
func (c *Child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	callOff := func() {}
	if c.Whole {
		callOff = adopt() // before the program begins
	}
	err := c.begin()
	if err != nil {
		callOff() // before the next program is started
	}
	if started <- err; err != nil {
		return
	}
	c.await()
	disown(c.Pid())
	if c.Whole {
		c.strays, c.spared = endOrphans(c.Pid())
	}
	callOff()
	c.unleash()
	close(c.done)
}

// begin starts the program. If the child has a watchdog, the program does not run until the watchdog has been told the
// program's process id. After the watchdog's deadline, begin no longer waits for the program to start.
func (c *Child) begin() (err error) {
	dog := c.leash.dog
	if dog == nil || c.cmd.Err != nil {
		c.pid, err = startOwn(c.cmd)
		return err
	}
	g, err := putBehind(c.cmd)
	if err != nil {
		return err
	}
	defer g.close()
	c.pid, err = startOwn(c.cmd)
	g.started()
	if err != nil {
		return err
	}
	if c.Until != nil { // before watch, after which a watchdog whose deadline has passed kills the process
		dog.Allow(c.Until())
	}
	c.leash.leader = born(c.Pid())
	dog.watch(c.Pid(), c.leash.leader)
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

// Pid returns the child's process id, which is also its group's id.
func (c *Child) Pid() int { return c.pid }

// Done returns a channel that is closed when the child has exited and, unless Leaving is set, the rest of its group has
// been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code returns the exit code, once Done is closed.
func (c *Child) Code() int { return c.code }

// Left returns how many processes outside the child's group were killed when the child exited, and how many processes
// could not be killed, because they belong to other users. Call it only after Done is closed. Without Whole, and on
// systems other than Linux, both numbers are 0.
func (c *Child) Left() (killed, spared int) { return c.strays, c.spared }

// Changed returns a channel that receives a value after the program was stopped or continued.
func (c *Child) Changed() <-chan struct{} { return c.changed }

// Stopped returns the signal that stopped the program, or nil.
func (c *Child) Stopped() os.Signal {
	c.state.Lock()
	defer c.state.Unlock()
	return c.state.stopped
}

// Signal sends a signal to the whole group. It has no effect once the program has exited.
func (c *Child) Signal(s os.Signal) {
	c.state.Lock()
	defer c.state.Unlock()
	c.signal(s)
}

// Kill kills the whole group immediately, even if it is stopped.
func (c *Child) Kill() { c.Signal(os.Kill) }

// signal is Signal for a caller that holds the state's mutex.
func (c *Child) signal(s os.Signal) {
	if !c.state.exited {
		signalGroup(c.pid, s)
	}
}

// family lists the processes that this package has started and still waits for. Any other child outside this process's
// own group is treated as an orphan, which this process has adopted as PID 1 or as a subreaper.
var family = struct {
	sync.Mutex // held while a process is started, because the process looks like an orphan until it is in pids
	pids       map[int]bool
	elders     map[int]string // the start times of processes older than the program, by process id; see the function elders
}{pids: map[int]bool{}}

func startOwn(cmd *exec.Cmd) (pid int, err error) {
	family.Lock()
	defer family.Unlock()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	family.pids[cmd.Process.Pid] = true
	return cmd.Process.Pid, nil
}

func disown(pid int) {
	family.Lock()
	defer family.Unlock()
	delete(family.pids, pid)
}
