package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"
)

func newPrune(o *common) *cobra.Command {
	var older time.Duration
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove the rows of locks that were released long ago",
		Long: `Prune deletes the rows of locks that were released at least --older ago and not
claimed since. Age counts from the release, by Spanner's clock. Locks that are
held, claimed or expired are left alone, and so are the rows of groups.

It is safe while candidates and holders run: a lock without a row is free, and
its tokens still grow. Don't set --older below the longest lease: a candidate
that saw the last holder, and has not looked since, waits one lease if the row
is gone. What was done last (exec --every, --once) is kept, as it would be done
again. To forget it, delete the row NAME!done.

It works in batches. If it is interrupted, what it has deleted stays deleted.
The --timeout is for each batch.
` + commonCodes,
		Example: `  spindle prune --dry-run
  spindle prune --older 168h`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if older < 0 {
				return misuse("--older %v: must not be negative", older)
			}
			return prune(c.Context(), o, older, dryRun)
		},
	}
	c.Flags().DurationVar(&older, "older", 24*time.Hour, "prune locks that were released at least this `duration` ago")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print the names, and delete nothing")
	_ = c.Flags().SetAnnotation("dry-run", commandLineOnly, []string{})
	return c
}

func prune(ctx context.Context, o *common, older time.Duration, dryRun bool) error {
	db, err := o.open(option.WithGRPCConnectionPool(1))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(o.timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()

	t, pruned := db.locks(), 0
	for seen, err := range t.Released(ctx, older) {
		n := len(seen)
		switch {
		case err == nil && dryRun:
			for _, l := range seen {
				fmt.Println(show(l.Name))
			}
		case err == nil:
			n, err = t.Prune(ctx, seen...)
		}
		if pruned += n; err != nil {
			return stopped(ctx, o, pruned, err)
		}
		late.Reset(o.timeout)
	}
	if dryRun {
		fmt.Fprintf(os.Stderr, "%d locks, released at least %v ago, would be pruned\n", pruned, older)
		return nil
	}
	fmt.Printf("pruned %d locks, released at least %v ago\n", pruned, older)
	return nil
}

// stopped says how far pruning came, and why ctx ended: the client's error does not tell.
func stopped(ctx context.Context, o *common, pruned int, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return o.explain(fmt.Errorf("after %d locks: %w", pruned, err))
}
