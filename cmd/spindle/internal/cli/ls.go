package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/internal/table"
)

const statesHelp = `The states, by Spanner's clock:
  held         its holder was heard from within its lease
  expired      its holder was not: the next candidate that looks takes it
  released     its last holder gave it back
  unconfirmed  it is claimed, but the claimant may not act yet
  orphaned     somebody deleted its row, but not the lease row
  unreadable   its lease row does not say how long the holder may act`

func newLs(o *common) *cobra.Command {
	var f format
	var everything bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: `Ls lists the locks in the table as they are at one instant. It leaves out locks
that were released, unless --all is given.

SINCE is how long ago the term began, or the lock was released. BEAT is how long
ago the last heartbeat was; a holder sends three in a lease. Both are by
Spanner's clock alone. If the holder's id and value don't fit on the line, they
are on a second one.

` + statesHelp + "\n" + commonCodes,
		Example: `  spindle ls
  spindle ls --all -o json | jq -r 'select(.state != "held") | .name'`,
		Args: exactly(0, "none"),
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error {
				all, _, err := t.List(ctx, everything)
				if err != nil {
					return err
				}
				return list(paperOn(os.Stdout), f, all, everything)
			})
		},
	}
	f.flag(c.Flags())
	c.Flags().BoolVarP(&everything, "all", "a", false, "list released locks too")
	return c
}

func list(p *paper, f format, all []table.Listing, everything bool) error {
	if f == asJSON {
		for _, l := range all {
			if err := printJSON(p, jsonOf(l)); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case len(all) == 0 && everything:
		fmt.Fprintln(os.Stderr, "There are no locks in the table.")
		return nil
	case len(all) == 0:
		fmt.Fprintln(os.Stderr, "There are no locks in the table. Released ones are listed with --all.")
		return nil
	}
	for _, line := range sheet(p, all) {
		fmt.Fprintln(p, line)
	}
	for _, l := range all {
		if l.Unreadable != nil {
			complain("%v", l.Unreadable)
		}
	}
	return nil
}
