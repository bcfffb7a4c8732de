package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

const watchHelp = `Watch shows changes of all locks, of the lock NAME, or of those whose names
begin with --prefix, until it is interrupted. On a terminal each lease is a bar
that runs out and is refilled by heartbeats, with the last changes below. A
healthy holder's bar stays above two thirds. Elsewhere, or with --lines, watch
prints a line for each lock, and then a line for each change, with its time by
Spanner's clock.

A group is shown as its members, and moves of its partitions as their number:
"17 partitions moved from a to b". --group watches only one group. To watch
partitions one by one, give the name of one, or a --prefix of several.

It looks once in each --every, so it misses a term that begins and ends between
two looks. It never misses that a lock has a new token.

`

// watching is one run of watch.
type watching struct {
	*common
	name   string
	group  string
	prefix string
	every  time.Duration
	lines  bool
	f      format
}

func newWatch(o *common) *cobra.Command {
	w := &watching{common: o}
	c := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Follow changes as they happen, and leases as they run out",
		Long:  watchHelp + statesHelp + "\n" + commonCodes,
		Example: `  spindle watch
  spindle watch --prefix billing/
  spindle watch --group orders
  spindle watch nightly -o json | jq -r 'select(.state == "expired") | .holder'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("watch takes the name of one lock, or none for all locks: got %q", args)
			}
			return nil
		},
		ValidArgsFunction: o.complete,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := table.CheckKey(args[0]); err != nil {
					return misuse("%w", err)
				}
				w.name = args[0]
			}
			if w.name != "" && w.prefix != "" {
				return misuse("%q and --prefix %q: give one of them", w.name, w.prefix)
			}
			if w.group != "" {
				name, err := groupNamed(w.group)
				switch {
				case err != nil:
					return err
				case w.name != "" || w.prefix != "":
					return misuse("--group %q and %q: give one of them", w.group, w.name+w.prefix)
				}
				w.prefix = table.GroupPrefix(name)
			}
			return w.run(c.Context())
		},
	}
	c.Flags().DurationVar(&w.every, "every", 500*time.Millisecond, "how often to look")
	c.Flags().StringVar(&w.prefix, "prefix", "", "watch only locks whose names begin with this `text`")
	c.Flags().StringVar(&w.group, "group", "", "watch only this `group`")
	_ = c.Flags().SetAnnotation("group", commandLineOnly, []string{})
	c.Flags().BoolVar(&w.lines, "lines", false, "print lines even on a terminal")
	w.f.flag(c.Flags())
	return c
}

// A look is what was found at one time.
type look struct {
	locks  []table.Listing
	groups []*group
	at     time.Time // by Spanner's clock
	local  time.Time // the same, by the local clock
	err    error
}

func (w *watching) run(ctx context.Context) error {
	if w.every < 10*time.Millisecond {
		return misuse("--every %v: must be at least 10ms", w.every)
	}
	db, err := w.open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	looks := make(chan look)
	go func() {
		t := db.locks()
		for ctx.Err() == nil {
			l := w.look(ctx, t)
			select {
			case looks <- l:
			case <-ctx.Done():
			}
			select {
			case <-time.After(w.every):
			case <-ctx.Done():
			}
		}
	}()
	stderr.timed = true
	p := paperOn(os.Stdout)
	if p.terminal && !w.lines && !w.f.json && os.Getenv("TERM") != "dumb" {
		return w.draw(ctx, p, looks)
	}
	return w.print(ctx, p, looks)
}

func (w *watching) look(ctx context.Context, t table.Table) (l look) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	sent := time.Now()
	if w.name == "" {
		l.locks, l.at, l.err = t.List(ctx, w.prefix, true)
		l.locks, l.groups = gather(l.locks, w.prefix)
	} else {
		var one table.Listing
		one, l.err = t.ListOne(ctx, w.name)
		l.locks, l.at = []table.Listing{one}, one.At
	}
	l.local = sent.Add(time.Since(sent) / 2)
	return l
}

// print writes a line for each change.
func (w *watching) print(ctx context.Context, p *paper, looks <-chan look) error {
	var s story
	failing := false
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case l := <-looks:
			switch {
			case l.err != nil && first:
				return w.explain(l.err) // probably a mistake, and not a passing failure
			case l.err != nil && ctx.Err() == nil && !failing:
				complain("can't read the locks, will try again: %v", w.explain(l.err))
			}
			if failing = l.err != nil; failing {
				continue
			}
			first = false
			for _, c := range s.next(l) {
				if err := w.line(p, c); err != nil {
					return err
				}
			}
		}
	}
}

func (w *watching) line(p *paper, c change) error {
	if w.f.json {
		return printJSON(p, c.JSON)
	}
	_, err := fmt.Fprintf(p, "%s  %s  %s\n", c.At.UTC().Format(stamp), p.paint(bold, show(c.Name)), p.paint(styles[c.State], c.Text))
	return err
}
