package demokit

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

const (
	// Glance is the interval at which a story calls Look.
	Glance = 50 * time.Millisecond

	// patience is how long a story waits for its next step. A few seconds are enough, unless the machine is busy.
	patience = 2 * time.Minute
)

// A Story is a timeline of what happens to child processes and to the resources that they share.
type Story struct {
	*Timeline
	Hear func(Report) error    // called with each report of a child; its error ends the story
	Look func(context.Context) // called regularly, for changes that no child reports; can be nil

	reports  chan Report
	children []*Child
}

// NewStory returns a story that begins now.
func NewStory() *Story { return &Story{Timeline: NewTimeline(), reports: make(chan Report)} }

// A Child is a child process that runs this program.
type Child struct {
	*subprocess.Child
	Name  string
	quiet context.CancelFunc // ends its reports
	told  bool               // whether it was told to end
	gone  bool
}

// A Report is a line that a child printed. The last report of a child says that the child has ended.
type Report struct {
	Child *Child
	Line  string
	Ended bool
	Err   error // set if it did not end with exit code 0
}

// Start starts a child process, which takes part in the story until the child, the story or ctx ends.
func (s *Story) Start(ctx context.Context, name string, args ...string) (*Child, error) {
	ctx, quiet := context.WithCancel(ctx)
	c := &Child{Name: name, quiet: quiet}
	send := func(r Report) {
		r.Child = c
		select {
		case s.reports <- r:
		case <-ctx.Done():
		}
	}
	var problems strings.Builder
	var err error
	c.Child, err = subprocess.Command{
		Args: args, Stderr: &problems,
		Line: func(line string) { send(Report{Line: line}) },
		Ended: func(err error) {
			if err != nil {
				err = fmt.Errorf("%w: %s", err, problems.String())
			}
			send(Report{Ended: true, Err: err})
		},
	}.Start()
	if err != nil {
		quiet()
		return nil, err
	}
	s.children = append(s.children, c)
	return c, nil
}

// Signal sends the child a signal. The child is expected to end only after SIGKILL or SIGTERM.
func (c *Child) Signal(sig os.Signal) error {
	c.told = c.told || sig == syscall.SIGKILL || sig == syscall.SIGTERM
	return c.Child.Signal(sig)
}

// Gone reports whether the story knows that the child has ended.
func (c *Child) Gone() bool { return c.gone }

// Until continues the story until enough returns true. It returns an error if a child ends without having been told to.
func (s *Story) Until(ctx context.Context, enough func() bool) error {
	tick := time.NewTicker(Glance)
	defer tick.Stop()
	timeout := time.After(patience)
	for !enough() {
		select {
		case r := <-s.reports:
			if r.Child.gone = r.Ended; r.Ended && !r.Child.told {
				return fmt.Errorf("%s, process %d, ended too early: %v", r.Child.Name, r.Child.Pid(), r.Err)
			}
			if err := s.Hear(r); err != nil {
				return err
			}
		case <-tick.C:
			if s.Look != nil {
				s.Look(ctx)
			}
		case <-timeout:
			return fmt.Errorf("the expected event did not happen within %v; the machine may be overloaded", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// End kills all children that are still running.
func (s *Story) End() {
	for _, c := range s.children {
		c.quiet()
		c.Kill()
	}
	s.children = nil
}

// InLeases formats a duration in seconds and in leases.
func InLeases(took, lease time.Duration) string {
	return fmt.Sprintf("%.2fs (%.2f leases)", took.Seconds(), float64(took)/float64(lease))
}
