package demokit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle"
)

// Rejected is the word after the token in a report that a write under that token was rejected.
const Rejected = "rejected"

// An Election is the story of three processes that compete for one lock. The first holder is killed, the second is
// paused, and the third loses the lock in another way. Each time, another process takes over. A process that has the
// lock reports its token repeatedly.
type Election struct {
	*Story
	Lease time.Duration
	Works string // what a process does while it has the lock, such as "leads"
	Fence bool   // the writes of the process are fenced, so the write after the pause must be rejected

	processes []*Child
	holder    *Child        // the process that reported the largest token
	token     spindle.Token // that token
	marks     int           // the number of reports with that token
	since     time.Time
	rejected  *Child   // the last process that reported a rejected write
	tokens    []string // of all terms
}

// NewElection returns a story that begins now.
func NewElection(lease time.Duration, works string, fence bool) *Election {
	e := &Election{Story: NewStory(), Lease: lease, Works: works, Fence: fence}
	e.Hear = e.hear
	return e
}

// Begin starts the processes A, B and C with the arguments that args returns for each. It returns once A has worked for
// a while.
func (e *Election) Begin(ctx context.Context, args func(name string) []string) error {
	for _, name := range []string{"A", "B", "C"} {
		c, err := e.Start(ctx, name, args(name)...)
		if err != nil {
			return err
		}
		e.processes = append(e.processes, c)
		e.Say(name, Plain, "competes for the lock as process %d", c.Pid())
		if name == "A" { // so that the story is the same each time
			if err := e.term(ctx); err != nil {
				return err
			}
		}
	}
	return e.marksUntil(ctx, 6)
}

// Holder returns the process that is working.
func (e *Election) Holder() *Child { return e.holder }

// Token returns the token under which that process is working.
func (e *Election) Token() spindle.Token { return e.token }

// Next calls the given function, which must make the working process lose the lock. It returns how long it took until
// another process began to work.
func (e *Election) Next(ctx context.Context, do func(holder *Child) error) (time.Duration, error) {
	at := time.Now()
	if err := do(e.holder); err != nil {
		return 0, err
	}
	if err := e.term(ctx); err != nil {
		return 0, err
	}
	return e.since.Sub(at), e.marksUntil(ctx, 5)
}

// Pause pauses the working process, and resumes it once another process is working. It prints the given text, which
// says what happens in the meantime.
func (e *Election) Pause(ctx context.Context, then string) (time.Duration, error) {
	paused := e.holder
	e.Say("", Bad, "kill -STOP %d: %s", paused.Pid(), then)
	took, err := e.Next(ctx, func(c *Child) error { return c.Signal(StopSignal) })
	if err != nil {
		return 0, err
	}
	e.Say("", Bad, "kill -CONT %d: it has lost the lock, and competes again", paused.Pid())
	if err := paused.Signal(ContinueSignal); err != nil {
		return 0, err
	}
	if e.Fence {
		return took, e.Until(ctx, func() bool { return e.rejected == paused })
	}
	return took, e.marksUntil(ctx, e.marks+4)
}

// GoHome stops the processes that are still running, and stops the working process last.
func (e *Election) GoHome(ctx context.Context) error {
	e.Say("", Plain, "the end: SIGTERM stops the waiting processes first, and then the working one")
	waiting := slices.DeleteFunc(slices.Clone(e.processes), func(c *Child) bool { return c == e.holder || c.Gone() })
	for _, c := range append(waiting, e.holder) {
		if err := c.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if err := e.Until(ctx, c.Gone); err != nil {
			return err
		}
	}
	return nil
}

// Tokens prints the tokens of all terms.
func (e *Election) Tokens() {
	lines := Wrap("Tokens  "+strings.Join(e.tokens, " < ")+": they only grow", width)
	e.Print(Bold, "%s", strings.Join(lines, "\n        "))
}

// term waits until a process works under a new token.
func (e *Election) term(ctx context.Context) error {
	before := e.token
	return e.Until(ctx, func() bool { return e.token != before })
}

func (e *Election) marksUntil(ctx context.Context, n int) error {
	return e.Until(ctx, func() bool { return e.marks >= n })
}

func (e *Election) hear(r Report) error {
	if r.Ended {
		e.Say(r.Child.Name, Plain, "has ended")
		return nil
	}
	line, late := strings.CutSuffix(r.Line, " "+Rejected)
	var token spindle.Token
	if _, err := fmt.Sscan(line, &token); err != nil {
		return fmt.Errorf("%s reported %q, which is not a token: %w", r.Child.Name, r.Line, err)
	}
	switch {
	case late:
		e.rejected = r.Child
		e.Say(r.Child.Name, Good, "still believes that it %s, but its write is REJECTED", e.Works)
		return nil
	case token > e.token:
		e.holder, e.token, e.marks, e.since = r.Child, token, 0, time.Now()
		e.tokens = append(e.tokens, token.String())
		e.Say(r.Child.Name, Good, "%s, token %v", strings.ToUpper(e.Works), token)
	case token < e.token && e.Fence:
		return nil // the reply to a write that was sent in time
	case token < e.token:
		e.Say(r.Child.Name, Bad, "still %s under token %v, because it has not noticed yet that it lost the lock", e.Works, token)
		return nil
	}
	e.marks++
	e.Mark(r.Child.Name, e.Works, "*")
	return nil
}
