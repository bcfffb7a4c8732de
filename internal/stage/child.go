package stage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// childVariable tells a process that it is a child.
const childVariable = "SPINDLE_EXAMPLE_CHILD"

// A Child is this program run again, as a process of its own. It ends when its parent does, in
// whatever way, even if it is stopped by a signal at that moment.
type Child struct {
	Name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	quiet context.CancelFunc // ends its reports
	ended chan struct{}
}

// A Report is a line that a child printed, or its last: that it has ended.
type Report struct {
	Child *Child
	Line  string
	Ended bool
	Err   error // how it ended, if not with exit code 0
}

// TooEarly is the error that a child has ended which should not have.
func (r Report) TooEarly() error {
	if r.Err == nil {
		return fmt.Errorf("%s has ended too early", r.Child.Name)
	}
	return fmt.Errorf("%s has ended too early: %w", r.Child.Name, r.Err)
}

// Start starts a child, which sends its reports until it ends, it is killed, or ctx ends.
func Start(ctx context.Context, name string, reports chan<- Report, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{Name: name, cmd: exec.Command(self, args...), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"="+name)
	var problems strings.Builder
	c.cmd.Stderr = &problems
	c.cmd.SysProcAttr = ownGroup()
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, c.quiet = context.WithCancel(ctx)
	send := func(r Report) {
		r.Child = c
		select {
		case reports <- r:
		case <-ctx.Done():
		}
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			send(Report{Line: lines.Text()})
		}
		err := c.cmd.Wait()
		if err != nil {
			err = fmt.Errorf("process %d: %w: %s", c.Pid(), err, problems.String())
		}
		close(c.ended)
		send(Report{Ended: true, Err: err})
	}()
	return c, nil
}

// Pid is the child's process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Signal sends the child a signal.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Tell sends the child a line, which its Orders has.
func (c *Child) Tell(line string) error {
	_, err := fmt.Fprintln(c.stdin, line)
	return err
}

// Kill ends the child, if it has not ended, and returns when it has.
func (c *Child) Kill() {
	c.quiet()
	_ = c.cmd.Process.Kill() // which fails where it has ended
	<-c.ended
}

// Orders tells whether this process is a child, and of what name. A child is told lines by its parent,
// and exits when that is gone.
func Orders() (name string, orders <-chan string, ok bool) {
	name = os.Getenv(childVariable)
	if name == "" {
		return "", nil, false
	}
	told := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			told <- lines.Text()
		}
		os.Exit(1)
	}()
	return name, told, true
}
