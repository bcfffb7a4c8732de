package cli

import (
	"cmp"
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
  unreadable   its lease row does not say how long the holder may act, or was
               written by a newer version, so that only newer programs know
  free         it has no row: only what was done last under it is known, or who
               waits for it`

func newLs(o *common) *cobra.Command {
	var f format
	var s selection
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: `Ls lists the locks in the table as they are at one instant, or only those whose
names begin with PREFIX. It leaves out released locks that nobody waits for,
unless --all is given; with --held it lists only those that are held. For a
single lock, use spindle status: it says who waits for it, too.

SINCE is how long ago the term began, or the lock was released. BEAT is how long
ago the last heartbeat was; a holder sends three in a lease. Both are by
Spanner's clock alone. If the holder's id and value don't fit on the line, they
are on a second line. What was done last under a lock (exec --every, --once, or
lock.Once) is below it.

"3 waiting, 12s the longest" is how many processes wait for the lock, by package
lock. Those that wait for a semaphore are at its first slot that is listed.

A group of package group is one line: how many members and partitions it has,
and how many of these have no holder. --group opens it: its members, each with
its partitions, and then every partition. A partition's state is its member's.
A group is listed even if nobody is in it any more, unless --held is given.

` + statesHelp + `
  partial      a group: some of its partitions have no holder
` + commonCodes + `
  3    there is no group that --group names`,
		Example: `  spindle ls
  spindle ls billing/ --held
  spindle ls --group orders
  spindle ls --all -o json | jq -r 'select(.state != "held") | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %q: want one prefix of names, or none for all locks", args)
			}
			return nil
		},
		ValidArgsFunction: o.complete,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if s.prefix = strings.Join(args, ""); !utf8.ValidString(s.prefix) || len(s.prefix) > table.MaxName {
				return misuse("no lock has a name that begins with %.40q: names are up to %d bytes of UTF-8", s.prefix, table.MaxName)
			}
			if s.all && s.held {
				return misuse("--all and --held: give one of them")
			}
			if s.group != "" {
				if s.group, err = groupNamed(s.group); err != nil {
					return err
				}
				if s.prefix != "" {
					return misuse("%q and --group %q: give one of them", s.prefix, s.group)
				}
				s.prefix = table.GroupPrefix(s.group)
			}
			return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error {
				found, _, err := t.List(ctx, s.prefix, s.all)
				if err != nil {
					return err
				}
				if s.group != "" {
					return s.open(paperOn(os.Stdout), f, found)
				}
				return s.list(paperOn(os.Stdout), f, found)
			})
		},
	}
	f.flag(c.Flags())
	c.Flags().BoolVarP(&s.all, "all", "a", false, "list released locks too")
	c.Flags().BoolVar(&s.held, "held", false, "list only locks that are held")
	c.Flags().StringVar(&s.group, "group", "", "list the members and partitions of this `group`")
	_ = c.Flags().SetAnnotation("group", commandLineOnly, []string{})
	return c
}

// A selection says which locks are listed.
type selection struct {
	prefix string
	all    bool   // released ones too
	held   bool   // only these
	group  string // only what it has
}

// wants reports whether a lock is listed.
func (s selection) wants(l table.Listing) bool {
	return s.all || l.IsHeld() || !s.held && (l.State() != table.Released || len(l.Waiters) > 0)
}

// none says that nothing was found.
func (s selection) none() string {
	if s.group != "" {
		return "There is no group " + show(s.group) + " in the table."
	}
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

// list prints a line for each lock, and one for each group.
func (s selection) list(p *paper, f format, found []table.Listing) error {
	locks, groups := gather(found, s.prefix)
	var all []entry
	for _, l := range locks {
		if s.wants(l) {
			all = append(all, lockEntry(l))
		}
	}
	for _, g := range groups {
		if !s.held || countHeld(g.partitions) > 0 {
			all = append(all, g.entry())
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return s.print(p, f, lockColumns, all)
}

// open prints the members and partitions of a group.
func (s selection) open(p *paper, f format, found []table.Listing) error {
	_, groups := gather(found, s.prefix)
	if len(groups) == 0 {
		fmt.Fprintln(os.Stderr, s.none())
		return &exit{code: nobodyThere}
	}
	g := groups[0]
	if !f.json {
		fmt.Fprintf(p, "%s is %s: %s\n\n", p.paint(bold, show(g.prefix)), p.paint(styles[g.state()], string(g.state())), g.sum())
	}
	g.members = slices.DeleteFunc(g.members, func(l table.Listing) bool { return !s.wants(l) })
	if s.held {
		g.partitions = slices.DeleteFunc(g.partitions, func(l table.Listing) bool { return !l.IsHeld() })
	}
	members, partitions := g.memberEntries(), g.partitionEntries()
	if err := s.print(p, f, []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS", "ID AND VALUE"}, members); err != nil {
		return err
	}
	if !f.json && len(members) > 0 {
		fmt.Fprintln(p)
	}
	return s.print(p, f, []string{"PARTITION", "STATE", "TOKEN", "SINCE", "SLOT AND HOLDER"}, partitions)
}

func (s selection) print(p *paper, f format, columns []string, all []entry) error {
	if f.json {
		for _, e := range all {
			if err := printJSON(p, e.json); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		if s.group == "" {
			fmt.Fprintln(os.Stderr, s.none())
		}
		return nil
	}
	for _, line := range sheet(p, columns, all) {
		fmt.Fprintln(p, line)
	}
	for _, e := range all {
		if e.trouble != nil {
			complain("%v", e.trouble)
		}
	}
	return nil
}
