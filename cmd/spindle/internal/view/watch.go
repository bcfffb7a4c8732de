package view

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const watchHelp = `Watch prints a line for each lock, and then a line for each change, until it is
interrupted. By default, it watches all locks. With NAME, it watches only that
lock. With --prefix, it watches only the locks whose names begin with the
prefix. Each line begins with the time of the change by Spanner's clock.

To see all locks at once, with those in trouble first, use spindle ls --watch,
or spindle serve in a browser.

Watch reads the table once per --every interval. A large table is read less
often, so that reads take up at most a fifth of the time. A term that begins and
ends between two reads is missed. Even then, the printed lines show that the
lock has a new token.

The members of a group are printed one by one, but the partitions that move are
only counted, as in "17 partitions moved from a to b". To watch only one group,
use --prefix with its name and a slash. To watch single partitions, give the
name of a partition, or use --prefix with the first part of their names.

`

// watching is one run of watch.
type watching struct {
	*connect.Database
	name   string
	prefix string
	every  time.Duration
	f      terminal.Format
}

// NewWatch returns the command watch.
func NewWatch(o *connect.Database) *cobra.Command {
	w := &watching{Database: o}
	c := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Print each change of the locks",
		Long:  watchHelp + model.Help + "\n" + flags.CommonCodes,
		Example: `  spindle watch
  spindle watch --prefix billing/
  spindle watch --prefix orders/
  spindle watch nightly -o json | jq -r 'select(.state == "expired") | .holder'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("watch takes at most one lock name, but got %q", args)
			}
			return nil
		},
		ValidArgsFunction: complete.Locks(o),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := table.CheckKey(args[0]); err != nil {
					return exit.Misuse("%w", err)
				}
				w.name = args[0]
			}
			if w.name != "" && w.prefix != "" {
				return exit.Misuse("give either the lock %q or --prefix %q, not both", w.name, w.prefix)
			}
			return w.run(c.Context())
		},
	}
	c.Flags().DurationVar(&w.every, "every", time.Second, "the shortest pause between two reads of the table")
	c.Flags().StringVar(&w.prefix, "prefix", "", "watch only locks whose names begin with this `text`")
	w.f.Flag(c.Flags())
	return c
}

// A look is the result of one read of the table.
type look struct {
	locks  []operator.Listing
	groups []*model.Group
	at     time.Time     // by Spanner's clock
	took   time.Duration // 0 if it failed
	pause  time.Duration // until the next one
	err    error
}

func (w *watching) run(ctx context.Context) error {
	if w.every < 10*time.Millisecond {
		return exit.Misuse("--every %v: must be at least 10ms", w.every)
	}
	db, err := w.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	terminal.Stderr.Time()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	looks := make(chan look)
	go w.follow(ctx, db.Locks(), looks)
	return w.print(ctx, terminal.On(os.Stdout), looks)
}

// follow reads the table until ctx ends, and sends the results to looks. It also reads released locks, because a new
// token shows that a lock was held in the meantime. This makes reads of a large table slow, so follow pauses longer
// between them.
func (w *watching) follow(ctx context.Context, t table.Table, looks chan<- look) {
	var before time.Duration
	for ctx.Err() == nil {
		l := w.look(ctx, t)
		l.pause = pause(w.every, l.took, before)
		before = l.took
		select {
		case looks <- l:
		case <-ctx.Done():
		}
		select {
		case <-time.After(l.pause):
		case <-ctx.Done():
		}
	}
}

const (
	share        = 4
	longestPause = 15 * time.Second
)

// pause returns how long to wait before the next read, given the durations of the last two reads. The pause is a
// multiple of the shorter duration, so that reads of a large table take up only a small part of Spanner's time. The
// longer duration is ignored, because a single read that hangs does not mean that the table is large.
func pause(every, took, before time.Duration) time.Duration {
	return max(every, min(share*min(took, before), longestPause))
}

func (w *watching) look(ctx context.Context, t table.Table) (l look) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	began := time.Now()
	if w.name == "" {
		l.locks, l.at, l.err = operator.List(ctx, t, w.prefix, true)
		l.locks, l.groups = model.Gather(l.locks, w.prefix)
	} else {
		var one operator.Listing
		one, l.err = operator.ListOne(ctx, t, w.name)
		l.locks, l.at = []operator.Listing{one}, one.At
	}
	if l.err == nil {
		l.took = time.Since(began)
	}
	return l
}

// suspicious is how long a read can take before watch reports that Spanner does not answer.
const suspicious = 2 * time.Second

// print prints a line for each change. An outage is one message when reads begin to fail or hang, and one when it ends.
func (w *watching) print(ctx context.Context, p *terminal.Terminal, looks <-chan look) error {
	var s story
	seen, failing := "", false
	fail := func(format string, args ...any) {
		if !failing {
			terminal.Complain(format, args...)
		}
		failing = true
	}
	late := time.NewTimer(suspicious)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			fail("no answer from Spanner for %v%s", suspicious, seen)
		case l := <-looks:
			late.Reset(l.pause + suspicious)
			switch {
			case l.err != nil && seen == "":
				return w.Explain(l.err) // probably a mistake by the user rather than a temporary failure
			case l.err != nil && ctx.Err() == nil:
				fail("can't read the locks, will try again: %v", w.Explain(l.err))
			}
			if l.err != nil {
				continue
			}
			if seen = "; the last output is as of " + l.at.UTC().Format("15:04:05Z"); failing {
				failing = false
				terminal.Complain("the locks can be read again")
			}
			for _, c := range s.next(l) {
				if err := w.line(p, c); err != nil {
					return err
				}
			}
		}
	}
}

func (w *watching) line(p *terminal.Terminal, c change) error {
	if w.f.Objects() {
		return terminal.PrintJSON(p, c.JSON)
	}
	_, err := fmt.Fprintf(p, "%s  %s  %s\n", c.At.UTC().Format(terminal.Stamp), p.Paint(terminal.Bold, terminal.Show(c.Name)), p.Paint(model.Styles[c.State], c.Text))
	return err
}
