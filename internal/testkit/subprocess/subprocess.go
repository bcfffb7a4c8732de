// Package subprocess runs this program again as a child process that reads and prints lines. Tests and demonstrations
// use it for faults that affect a whole process, such as a kill or a pause.
package subprocess

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// mark is the first argument of a child.
const mark = "__child"

// A Command describes how to start a child.
type Command struct {
	Args   []string     // the arguments that Orders and Main provide in the child
	Env    []string     // added to this process's environment, which it overrides
	Stderr io.Writer    // discarded if nil
	Line   func(string) // called with each line that the child prints
	Ended  func(error)  // called after the last line, with nil for exit code 0; can be nil
}

// A Child is a process that runs this program. It ends when its parent ends for any reason, even if a signal has
// stopped the child.
type Child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
}

// Start starts a child.
func (c Command) Start() (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := &Child{cmd: exec.Command(self, append([]string{mark}, c.Args...)...), done: make(chan struct{})}
	child.cmd.Env = append(os.Environ(), c.Env...)
	child.cmd.Stderr = c.Stderr
	child.cmd.SysProcAttr = ownGroup()
	if child.stdin, err = child.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := child.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(child.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.Line(lines.Text())
		}
		if err := child.cmd.Wait(); c.Ended != nil {
			c.Ended(err)
		}
	}()
	return child, nil
}

// Pid returns the child's process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Signal sends the child a signal.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Send sends the child a line, which is one of its orders.
func (c *Child) Send(line string) error {
	_, err := fmt.Fprintln(c.stdin, line)
	return err
}

// Done returns a channel that is closed when the child has exited and Ended has returned.
func (c *Child) Done() <-chan struct{} { return c.done }

// Kill kills the child as kill -9 does, if it is still running, and waits until Done's channel is closed.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails if the child has exited
	<-c.done
}

// Orders recognizes a child by its arguments. In a child, it returns a channel with the lines that the parent sends,
// and the arguments from Command.Args. Once the child has received all of these lines and the parent has exited, Orders
// makes the child exit. In any other process, Orders returns nil and args.
func Orders(args []string) (<-chan string, []string) {
	if len(args) == 0 || args[0] != mark {
		return nil, args
	}
	orders := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
		os.Exit(1)
	}()
	return orders, args[1:]
}

// Main calls run in a child, and then exits. In any other process, it does nothing.
func Main(run func(args []string, orders <-chan string) error) {
	orders, args := Orders(os.Args[1:])
	if orders == nil {
		return
	}
	if err := run(args, orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
