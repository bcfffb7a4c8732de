package operate

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const pruneHelp = `Prune deletes the rows of locks that were released at least --older ago and have
not been claimed since. Spanner's clock determines how long ago that was. Prune
keeps the rows of groups, of locks that are held, claimed or expired, and of
locks that an operator released within the last day.

With --expired-older, prune also deletes the rows of locks whose leases expired
at least that long ago, and of unconfirmed claims that are at least that old.
Such rows remain if a process is killed and no other process ever uses the same
lock name. If the holder of a pruned lock resumes, it loses the lock and its
fenced writes fail, just as if another process had taken over. --expired-older
must be at least 24h, which is the longest possible lease.

You can prune while candidates and holders are running. A lock without a row is
free, and its next token is still larger than all previous ones. However, don't
set --older to less than the longest lease in use. Otherwise, a candidate that
has missed the release waits for one lease before it claims the lock.

Prune keeps the records of completed work that lock.Once, and exec with --every,
--cron or --once, write. Without these records, the work could be done again. To
delete the record for the lock NAME, delete the row NAME!done.

A process that waits in a lock's queue has a ticket in the table. Prune also
deletes expired tickets. Tickets that older versions of spindle wrote have no
expiry time, and are deleted a day after they were last written. If a process is
in fact still waiting, it writes its ticket again.

Prune deletes rows in batches. If it is interrupted, the rows of the batches
that it has finished stay deleted. --timeout limits each request, not the run.
`

// pruning is one run of prune.
type pruning struct {
	*database.Database
	f      terminal.Format
	ages   operator.Ages
	dryRun bool
}

// NewPrune returns the command prune.
func NewPrune(o *database.Database) *cobra.Command {
	p := &pruning{Database: o}
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete the rows of locks that were released long ago",
		Long:  pruneHelp + terminal.CommonCodes,
		Example: `  spindle prune --dry-run
  spindle prune --older 168h --expired-older 168h`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case p.ages.Released < 0:
				return terminal.Misuse("--older %v: must not be negative", p.ages.Released)
			case c.Flags().Changed("expired-older") && p.ages.Expired < table.MaxLease:
				return terminal.Misuse("--expired-older %v: must be at least %v, the longest possible lease; to keep expired locks, leave out the flag", p.ages.Expired, table.MaxLease)
			}
			db, err := o.Open()
			if err != nil {
				return err
			}
			defer db.Close()
			ctx, stop := terminal.UntilInterrupted(c.Context())
			defer stop()
			return p.run(ctx, db.Audibly(o))
		},
	}
	c.Flags().DurationVar(&p.ages.Released, "older", 24*time.Hour, "prune locks released at least this `duration` ago")
	c.Flags().DurationVar(&p.ages.Expired, "expired-older", 0, "also prune locks expired for at least this `duration` (default: none)")
	c.Flags().BoolVar(&p.dryRun, "dry-run", false, "only print the names of the locks, and delete nothing")
	p.f.Flag(c.Flags())
	terminal.OnlyOnCommandLine(c.Flags(), "dry-run")
	return c
}

func (p *pruning) run(ctx context.Context, t table.Table) error {
	t = patient(t, p.Timeout)
	locks, err := p.locks(ctx, t)
	tickets := 0
	if err == nil {
		tickets, err = p.tickets(ctx, t)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // the Spanner client's own error does not mention it
		}
		done := terminal.Count(locks, "lock")
		if tickets > 0 {
			done += " and " + terminal.Count(tickets, "stale ticket")
		}
		return p.Explain(fmt.Errorf("stopped after %s: %w", done, err))
	}
	if p.f.Objects() {
		return terminal.PrintJSON(os.Stdout, PrunedJSON{p.dryRun, locks, tickets})
	}
	which := fmt.Sprintf("%s (released at least %v ago", terminal.Count(locks, "lock"), p.ages.Released)
	if p.ages.Expired != 0 {
		which += fmt.Sprintf(" or expired at least %v ago", p.ages.Expired)
	}
	which += ")"
	if tickets > 0 {
		which += ", and " + terminal.Count(tickets, "stale ticket")
	}
	if p.dryRun {
		fmt.Fprintf(os.Stderr, "would prune %s\n", which)
		return nil
	}
	_, err = fmt.Printf("pruned %s\n", which)
	return err
}

// locks deletes locks and returns their number. In a dry run, it prints their names instead of deleting them.
func (p *pruning) locks(ctx context.Context, t table.Table) (pruned int, err error) {
	for seen, err := range operator.Prunable(ctx, t, p.ages) {
		n := len(seen)
		switch {
		case err == nil && p.dryRun:
			err = p.name(seen)
		case err == nil:
			n, err = t.Prune(ctx, seen...)
		}
		if pruned += n; err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

// PrunedJSON is the JSON form of prune's totals, which are its last line of output.
type PrunedJSON struct {
	DryRun  bool `json:"dry_run"`                    // --dry-run was given: nothing was deleted
	Locks   int  `json:"locks" schema:"minimum=0"`   // how many locks were, or would be, pruned
	Tickets int  `json:"tickets" schema:"minimum=0"` // how many tickets of dead waiters were, or would be, deleted
}

// PrunableJSON is the JSON form of a lock that prune --dry-run would prune.
type PrunableJSON struct {
	Name string `json:"name"` // its name
}

func (p *pruning) name(seen []table.Observation) error {
	for _, l := range seen {
		var err error
		if p.f.Objects() {
			err = terminal.PrintJSON(os.Stdout, PrunableJSON{l.Name})
		} else {
			_, err = fmt.Println(terminal.Show(l.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tickets deletes stale tickets and returns their number. In a dry run, it only counts them.
func (p *pruning) tickets(ctx context.Context, t table.Table) (n int, err error) {
	for tickets, err := range operator.StaleTickets(ctx, t) {
		if err == nil && !p.dryRun {
			err = t.Queue(ctx, tickets...)
		}
		if err != nil {
			return n, fmt.Errorf("pruning tickets: %w", err)
		}
		n += len(tickets)
	}
	return n, nil
}

// patient returns a table that applies the timeout to each request rather than to the whole run.
func patient(t table.Table, timeout time.Duration) table.Table {
	return table.Table{Store: table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := do(limited, t.Store)
		if err != nil && limited.Err() != nil {
			return fmt.Errorf("no answer within %v: %w", timeout, limited.Err()) // the client's error does not mention the timeout
		}
		return err
	})}
}
