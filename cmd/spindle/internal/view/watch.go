package view

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const watchHelp = `Watch prints a line for each lock, and then a line for each change, until it is
interrupted. By default, it watches all locks. With NAME, it watches only that
lock. With --prefix, it watches only the locks whose names begin with the
prefix. Each line begins with the time of the change by Spanner's clock.

To see all locks at once, use spindle serve and a browser, or use
spindle ls --watch, which lists locks in trouble first.

Watch pauses for the duration --every between two reads of the table. If a large
table makes reads slow, it pauses for longer, up to 15 seconds, so that reads
take up about a fifth of the time. A term that begins and ends between two reads
is missed, although its release may be printed.

The members of a group are printed one by one, but the partitions that move are
only counted, as in "17 partitions moved from a to b". To watch only one group,
use --prefix with the group's name and a slash. To watch a single partition,
give its name, such as orders/partition/17. To watch several partitions, use
--prefix with the beginning of their names.

`

// watching is one run of watch.
type watching struct {
	*database.Database
	name   string
	prefix string
	every  time.Duration
	f      terminal.Format
}

// NewWatch returns the command watch.
func NewWatch(o *database.Database) *cobra.Command {
	w := &watching{Database: o}
	c := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Print each change of the locks",
		Long:  watchHelp + model.Help + "\n" + terminal.CommonCodes,
		Example: `  spindle watch
  spindle watch --prefix billing/
  spindle watch --prefix orders/
  spindle watch nightly -o json | jq -r 'select(.state == "expired") | .holder'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return table.CheckKey(args[0])
			}
			return terminal.AtMostOne("lock name")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			w.name = strings.Join(args, "")
			if w.name != "" && w.prefix != "" {
				return terminal.Misuse("give either the lock %q or --prefix %q, not both", w.name, w.prefix)
			}
			return w.run(c.Context(), terminal.On(os.Stdout))
		},
	}
	c.Flags().DurationVar(&w.every, "every", time.Second, "minimum time between reads of the table")
	c.Flags().StringVar(&w.prefix, "prefix", "", "watch only locks whose names begin with this `text`")
	w.f.Flag(c.Flags())
	return c
}

// run prints a line for each change. It also reads released locks, because the new token of a released lock shows that
// the lock was held between two reads.
func (w *watching) run(ctx context.Context, p *terminal.Terminal) error {
	if w.every < 10*time.Millisecond {
		return terminal.Misuse("--every %v: must be at least 10ms", w.every)
	}
	var s story
	f := follower{Database: w.Database, every: w.every, patience: 2 * time.Second,
		read: func(ctx context.Context, t table.Table) ([]operator.Listing, time.Time, error) {
			if w.name == "" {
				return operator.List(ctx, t, w.prefix, true)
			}
			one, err := operator.ListOne(ctx, t, w.name)
			return []operator.Listing{one}, one.At, err
		},
		show: func(found []operator.Listing, at time.Time) error {
			locks, groups := model.Gather(found, cmp.Or(w.name, w.prefix))
			for _, c := range s.next(locks, groups, at) {
				if err := w.line(p, c); err != nil {
					return err
				}
			}
			return nil
		}}
	return f.run(ctx)
}

func (w *watching) line(p *terminal.Terminal, c change) error {
	if w.f.Objects() {
		return terminal.PrintJSON(p, c.JSON)
	}
	_, err := fmt.Fprintf(p, "%s  %s  %s\n", c.At.UTC().Format(terminal.Stamp), p.Paint(terminal.Bold, terminal.Show(c.Name)), p.Paint(model.Styles[c.State], c.Text))
	return err
}
