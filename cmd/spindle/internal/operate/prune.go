package operate

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// NewPrune returns the command prune.
func NewPrune(o *connect.Database) *cobra.Command {
	var ages operator.Ages
	var dryRun bool
	var f terminal.Format
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete the rows of locks that were released long ago",
		Long: `Prune deletes the rows of locks that were released at least --older ago and have
not been claimed since. Spanner's clock determines how long ago that was. Prune
keeps rows that belong to groups, to locks that are held, claimed or expired,
and to locks that an operator released within the last day.

With --expired-older, prune also deletes the rows of locks whose leases expired
at least that long ago, and of unconfirmed claims that are at least that old.
Such rows remain if a process is killed and no other process ever uses the same
lock name. If the holder of a pruned lock resumes, it loses the lock and its
fenced writes fail, just as if another process had taken over. The age must be
at least 24h, which is the longest possible lease.

You can prune while candidates and holders are running. A lock without a row is
free, and its next token is still larger than all previous ones. However, don't
set --older to less than the longest lease in use. Otherwise, a candidate that
has missed the release waits for one lease before it claims the lock.

Prune keeps the records that exec --every, exec --once and lock.Once write when
work is done, because the work would otherwise be done again. To delete such a
record, delete the row NAME!done.

Processes that wait for a lock with package lock have tickets in the table.
Prune also deletes tickets that their processes have not renewed in time, and
those of older versions after a day. If a process is in fact still waiting, it
writes its ticket again.

Prune works in batches. If it is interrupted, the batches that it has finished
stay deleted. The --timeout applies to each request.
` + flags.CommonCodes,
		Example: `  spindle prune --dry-run
  spindle prune --older 168h --expired-older 168h`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case ages.Released < 0:
				return exit.Misuse("--older %v: must not be negative", ages.Released)
			case c.Flags().Changed("expired-older") && ages.Expired < table.MaxLease:
				return exit.Misuse("--expired-older %v: must be at least %v, the longest possible lease; to keep expired locks, leave out the flag", ages.Expired, table.MaxLease)
			}
			return prune(c.Context(), o, f, ages, dryRun)
		},
	}
	c.Flags().DurationVar(&ages.Released, "older", 24*time.Hour, "prune locks released at least this `duration` ago")
	c.Flags().DurationVar(&ages.Expired, "expired-older", 0, "also prune locks expired at least this `duration` ago (default: none)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print the names of the locks, and delete nothing")
	f.Flag(c.Flags())
	flags.OnlyOnCommandLine(c.Flags(), "dry-run")
	return c
}

func prune(ctx context.Context, o *connect.Database, f terminal.Format, ages operator.Ages, dryRun bool) error {
	db, err := o.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return pruneIn(ctx, o, f, db.Audibly(o), ages, dryRun)
}

func pruneIn(ctx context.Context, o *connect.Database, f terminal.Format, t table.Table, ages operator.Ages, dryRun bool) error {
	t = patient(t, o.Timeout)
	pruned := 0
	for seen, err := range operator.Prunable(ctx, t, ages) {
		n := len(seen)
		switch {
		case err == nil && dryRun:
			err = nameThem(f, seen)
		case err == nil:
			n, err = t.Prune(ctx, seen...)
		}
		if pruned += n; err != nil {
			return stopped(ctx, o, pruned, err)
		}
	}
	tickets, err := pruneTickets(ctx, t, dryRun)
	if err != nil {
		return stopped(ctx, o, pruned, err)
	}
	if f.Objects() {
		return terminal.PrintJSON(os.Stdout, PrunedJSON{dryRun, pruned, tickets})
	}
	which := fmt.Sprintf("%d locks that were released at least %v ago", pruned, ages.Released)
	if ages.Expired != 0 {
		which += fmt.Sprintf(" or expired at least %v ago", ages.Expired)
	}
	switch {
	case tickets == 1:
		which += ", and 1 stale ticket"
	case tickets > 1:
		which += fmt.Sprintf(", and %d stale tickets", tickets)
	}
	if dryRun {
		fmt.Fprintf(os.Stderr, "would prune %s\n", which)
		return nil
	}
	fmt.Printf("pruned %s\n", which)
	return nil
}

// PrunedJSON is the JSON form of prune's totals, its last line.
type PrunedJSON struct {
	DryRun  bool `json:"dry_run"`                    // --dry-run was given: nothing was deleted
	Locks   int  `json:"locks" schema:"minimum=0"`   // how many locks were, or would be, pruned
	Tickets int  `json:"tickets" schema:"minimum=0"` // how many tickets of dead waiters were, or would be, deleted
}

// PrunableJSON is the JSON form of a lock that prune --dry-run would prune.
type PrunableJSON struct {
	Name string `json:"name"` // its name
}

func nameThem(f terminal.Format, seen []table.Observation) error {
	for _, l := range seen {
		if !f.Objects() {
			fmt.Println(terminal.Show(l.Name))
		} else if err := terminal.PrintJSON(os.Stdout, PrunableJSON{l.Name}); err != nil {
			return err
		}
	}
	return nil
}

// pruneTickets deletes stale tickets and returns their number. With dryRun, it only counts them.
func pruneTickets(ctx context.Context, t table.Table, dryRun bool) (n int, err error) {
	for tickets, err := range operator.StaleTickets(ctx, t) {
		if err == nil && !dryRun {
			err = t.Queue(ctx, tickets...)
		}
		if err != nil {
			return n, fmt.Errorf("pruning tickets: %w", err)
		}
		n += len(tickets)
	}
	return n, nil
}

// patient returns a table that applies the timeout to each request, however many requests there are.
func patient(t table.Table, timeout time.Duration) table.Table {
	return table.Table{Store: table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := do(limited, t.Store)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("no answer within %v: %w", timeout, limited.Err()) // the client's error does not mention the timeout
		}
		return err
	})}
}

// stopped returns an error that says how many locks were pruned before the failure. If ctx has ended, the error
// contains the cause, which the Spanner client's own error does not mention.
func stopped(ctx context.Context, o *connect.Database, pruned int, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return o.Explain(fmt.Errorf("stopped after %d locks: %w", pruned, err))
}
