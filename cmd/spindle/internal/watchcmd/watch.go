// Package watchcmd implements the command watch.
//
//   - watch.go: the flags, and the output as lines
//   - screen.go: the data for the screen of package watch
//   - changes.go, moves.go: what has changed between two reads
package watchcmd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/watch"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const watchHelp = `Watch shows locks and how they change, until it is interrupted. By default, it
shows all locks. With NAME, it shows only that lock. With --prefix, it shows
only the locks whose names begin with the prefix.

On a terminal, watch uses the whole screen. Locks in trouble are at the top:
expired, orphaned and unreadable locks, unconfirmed claims, and groups with
partitions that have no holder. Released locks are counted but hidden. A bar
shows how much of each lease is left. As long as the holder is healthy, the bar
is more than two thirds full. The keys are:

  up, down, j, k, PgUp, PgDn, g, G   choose a lock
  Enter   show its details, as spindle status does; Esc goes back
  /       show only locks whose name, state, holder or value contains a text
  s       sort by trouble, name, age or holder
  a       show or hide released locks
  h, r    hand the lock over or release it, as spindle handover and spindle
          release do, after showing the lock and its holder for confirmation
  c       show what has changed
  ?, q    show help; quit

Times on the screen are as of the last read, and the second line shows how long
ago that was. If Spanner does not answer, the screen says so within two seconds.

If the output is not a terminal, or with --plain, watch prints a line for each
lock, and then a line for each change. Each line begins with the time of the
change by Spanner's clock.

Watch reads the table once per --every interval. A large table is read less
often, so that reads take up at most a fifth of the time. A term that begins and
ends between two reads is missed. Even then, the printed lines show that the
lock has a new token.

A group is one row on the screen. The printed lines show its members one by one,
but only count the partitions that move, as in "17 partitions moved from a to
b". To watch only one group, use --group. To watch single partitions, give the
name of a partition, or use --prefix with the first part of their names.

`

// watching is one run of watch.
type watching struct {
	*connect.Database
	name   string
	group  string
	prefix string
	every  time.Duration
	plain  bool
	f      terminal.Format
}

// NewWatch returns the command watch.
func NewWatch(o *connect.Database) *cobra.Command {
	w := &watching{Database: o}
	c := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch locks change hands and leases run out",
		Long:  watchHelp + states.Help + "\n" + flags.CommonCodes,
		Example: `  spindle watch
  spindle watch --prefix billing/
  spindle watch --group orders
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
			if w.group != "" {
				name, err := describe.GroupNamed(w.group)
				switch {
				case err != nil:
					return err
				case w.name != "" || w.prefix != "":
					return exit.Misuse("give only one of --group %q and %q", w.group, w.name+w.prefix)
				}
				w.prefix = table.GroupPrefix(name)
			}
			return w.run(c.Context())
		},
	}
	c.Flags().DurationVar(&w.every, "every", time.Second, "the shortest pause between two reads of the table")
	c.Flags().StringVar(&w.prefix, "prefix", "", "watch only locks whose names begin with this `text`")
	c.Flags().StringVar(&w.group, "group", "", "watch only this `group`")
	flags.OnlyOnCommandLine(c.Flags(), "group")
	c.Flags().BoolVar(&w.plain, "plain", false, "print lines even on a terminal, for example for a screen reader")
	w.f.Flag(c.Flags())
	return c
}

// A look is the result of one read of the table.
type look struct {
	locks  []operator.Listing
	groups []*describe.Group
	at     time.Time     // by Spanner's clock
	took   time.Duration // 0 if it failed
	pause  time.Duration // until the next one
	busy   bool          // released locks are left out
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
	p := terminal.On(os.Stdout)
	if !w.plain && !w.f.Objects() && p.AtTerminal() {
		return w.draw(ctx, db)
	}
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	looks := make(chan look)
	go w.follow(ctx, db.Locks(), looks)
	return w.print(ctx, p, looks)
}

// follow reads the table until ctx ends, and sends the results to looks. It also reads released locks, because a new
// token shows that a lock was held in the meantime. This makes reads of a large table slow, so follow pauses longer
// between them.
func (w *watching) follow(ctx context.Context, t table.Table, looks chan<- look) {
	var before time.Duration
	for ctx.Err() == nil {
		l := w.look(ctx, t)
		l.pause = watch.Pause(w.every, l.took, before)
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

func (w *watching) look(ctx context.Context, t table.Table) (l look) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	began := time.Now()
	if w.name == "" {
		l.locks, l.at, l.err = operator.List(ctx, t, w.prefix, true)
		l.locks, l.groups = describe.Gather(l.locks, w.prefix)
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
	_, err := fmt.Fprintf(p, "%s  %s  %s\n", c.At.UTC().Format(terminal.Stamp), p.Paint(terminal.Bold, terminal.Show(c.Name)), p.Paint(states.Styles[c.State], c.Text))
	return err
}
