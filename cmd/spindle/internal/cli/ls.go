package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/internal/table"
)

const statesHelp = `The states, by Spanner's clock:
  held         its holder was heard from within its lease
  leaving      held, and its holder has announced that it will give the lock up
  expired      its holder fell silent: the next candidate that looks takes it
  released     its last holder gave it back
  unconfirmed  it is claimed, but the claimant may not act yet
  orphaned     somebody deleted its row, but not the lease row
  unreadable   its lease row does not say how long the holder may act`

func newLs(o *common) *cobra.Command {
	var f format
	var s selection
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: `Ls lists the locks in the table as they are at one instant, or only those whose
names begin with PREFIX. It leaves out released locks unless --all is given;
with --held it lists only those that are held. For a single lock, use spindle
status.

SINCE is how long ago the term began, or the lock was released. BEAT is how long
ago the last heartbeat was; a holder sends three in a lease. Both are by
Spanner's clock alone. If the holder's id and value don't fit on the line, they
are on a second line.

` + statesHelp + "\n" + commonCodes,
		Example: `  spindle ls
  spindle ls billing/ --held
  spindle ls --all -o json | jq -r 'select(.state != "held") | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %q: want one prefix of names, or none for all locks", args)
			}
			return nil
		},
		ValidArgsFunction: o.complete,
		RunE: func(c *cobra.Command, args []string) error {
			if s.prefix = strings.Join(args, ""); !utf8.ValidString(s.prefix) || len(s.prefix) > table.MaxName {
				return misuse("no lock has a name that begins with %.40q: names are up to %d bytes of UTF-8", s.prefix, table.MaxName)
			}
			if s.all && s.held {
				return misuse("--all and --held: give one of them")
			}
			return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error {
				found, err := s.list(ctx, t)
				if err != nil {
					return err
				}
				return list(paperOn(os.Stdout), f, s, found)
			})
		},
	}
	f.flag(c.Flags())
	c.Flags().BoolVarP(&s.all, "all", "a", false, "list released locks too")
	c.Flags().BoolVar(&s.held, "held", false, "list only locks that are held")
	return c
}

// A selection says which locks are listed.
type selection struct {
	prefix string
	all    bool // released ones too
	held   bool // only these
}

func (s selection) list(ctx context.Context, t table.Table) ([]table.Listing, error) {
	found, _, err := t.List(ctx, s.prefix, s.all)
	if s.held {
		found = slices.DeleteFunc(found, func(l table.Listing) bool { return !l.IsHeld() })
	}
	return found, err
}

// none says that nothing was found.
func (s selection) none() string {
	which := "There are no locks in the table"
	switch {
	case s.held:
		which = "No lock in the table is held"
	case !s.all:
		which = "No lock in the table is in use"
	}
	if s.prefix != "" {
		which += ", of those whose names begin with " + show(s.prefix)
	}
	if !s.all && !s.held {
		which += ". Released ones are listed with --all"
	}
	return which + "."
}

func list(p *paper, f format, s selection, all []table.Listing) error {
	if f.json {
		for _, l := range all {
			if err := printJSON(p, jsonOf(l)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintln(os.Stderr, s.none())
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
