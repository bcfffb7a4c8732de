// Package subprocess runs this program again, as a child process that reads and prints lines. It is for tests of what only
// a process can suffer, and for demonstrations of it.
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

// A Command says how to start a child.
type Command struct {
	Args   []string     // what Orders and Main return or pass on in the child
	Env    []string     // added to this process's environment, and wins
	Stderr io.Writer    // nil: discarded
	Line   func(string) // called with each line that the child prints
	Ended  func(error)  // called after the last line, or nil; its error is nil for exit code 0
}

// A Child is this program, run again as a separate process. It ends when its parent does, however that ends, even if a
// signal has stopped the child at that moment.
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

// Done returns a channel that is closed when the child has ended, and Ended has returned.
func (c *Child) Done() <-chan struct{} { return c.done }

// Kill ends the child as kill -9 does, if it has not ended, and returns when it has.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // which fails if it has ended
	<-c.done
}

// Orders recognizes a child by its arguments. In a child it returns the lines that the parent sends, and the arguments that
// the child was started with; the child exits when its parent is gone. In any other process it returns nil and args.
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

// Main runs a child, and exits. In any other process it does nothing.
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
