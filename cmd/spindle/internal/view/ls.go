// Package view implements the commands that show the locks in the table: ls, status, members and watch.
//
//   - ls.go, lswatch.go: ls and ls --watch
//   - follow.go: reading the table again and again
//   - selection.go: which locks ls lists, and in which order
//   - status.go, members.go: status and members
//   - watch.go: watch
//   - changes.go: what has changed between two reads
package view

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const lsHelp = `Ls lists the locks in the table, all read at about the same time. With PREFIX,
it lists only locks whose names begin with PREFIX. With --state, it lists only
locks in the given states. Without --state, it lists released locks only if a
process is waiting for them or --all is given. To see a single lock and the
processes that wait for it, use spindle status.

SINCE is the time since the term began or, for a released lock, the time since
its release. BEAT is the time since the last heartbeat. A healthy holder sends
three heartbeats per lease. Both times are measured by Spanner's clock alone.

If the holder's id and value don't fit on the line, they are on a second line.
If lock.Once, or exec with --every, --cron or --once, has done work under the
lock, the most recent work is on a line below. Names that don't fit are
shortened in the middle. -o wide prints one line per lock, however long it is.

"3 waiting, longest 12s" means that three processes are in the lock's queue, and
that one of them has been waiting for 12 seconds. Processes that wait without
queueing, such as exec with --every, are not shown. A process that waits for a
semaphore is shown only at the first of the semaphore's slots in the list.

--sort determines which locks come first:

  age       the oldest term
  beat      the longest time since a heartbeat
  lease     the longest lease
  waiting   the most waiters
  state     the locks most in need of attention

A group of package group has one line, with the number of its members, of its
partitions, and of its partitions without a holder. A group without members is
also listed, unless --state excludes it. --group shows one group in detail: its
members, each with the partitions that it holds, and then every partition. A
partition is in the same state as the member that holds it.

With --watch, ls runs until it is interrupted. It reads the table every two
seconds, or less often if the table is large, and redraws the list, by default
with --sort state. If the output is not a terminal, ls prints the list again
whenever a lock in it has changed. Heartbeats and waiters do not count as
changes. To print only the changes, use spindle watch.

-o json prints one object per line; spindle schema describes the objects.
-o name prints only the names, quoted for bash and zsh where necessary.

`

// NewLs returns the command ls.
func NewLs(o *database.Database) *cobra.Command {
	ls := &listing{Database: o}
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: lsHelp + model.Help + `
  partial      some partitions of the group have no holder
` + terminal.CommonCodes + `
  3    the group that --group names does not exist`,
		Example: `  spindle ls
  spindle ls billing/ --state held,leaving
  spindle ls --state expired,orphaned --sort age
  spindle ls --group orders
  spindle ls --watch
  spindle ls --all -o json | jq -r 'select(.state != "held") | .name'`,
		Args: terminal.AtMostOne("prefix"),
		RunE: func(c *cobra.Command, args []string) error {
			ls.selected.prefix = strings.Join(args, "")
			if err := ls.check(c); err != nil {
				return err
			}
			if ls.watch {
				return ls.follow(func() *terminal.Terminal { return terminal.On(os.Stdout) }).run(c.Context())
			}
			return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error {
				found, _, err := operator.List(ctx, t, ls.selected.prefix, ls.selected.idle())
				if err != nil {
					return err
				}
				return ls.print(terminal.On(os.Stdout), found)
			})
		},
	}
	ls.flags(c)
	return c
}

// listing is one run of ls.
type listing struct {
	*database.Database
	selected selection
	f        terminal.Format
	by       terminal.Choice
	watch    bool
}

func (ls *listing) flags(c *cobra.Command) {
	ls.by = terminal.Choose("choice", orderNames...)
	f := c.Flags()
	f.BoolVarP(&ls.selected.all, "all", "a", false, "also list released locks")
	f.Var(&ls.selected.states, "state", "list only locks in these comma-separated `states`")
	f.StringVar(&ls.selected.group, "group", "", "list the members and partitions of this `group`")
	f.Var(&ls.by, "sort", "sort by this `key`: "+terminal.OneOf(orderNames))
	ls.f.Flag(f, terminal.AsWide, terminal.AsName)
	f.BoolVarP(&ls.watch, "watch", "w", false, "keep running and redraw the list, with the locks most in need of attention first")
	terminal.OnlyOnCommandLine(f, "state", "group", "watch")
}

func (ls *listing) check(c *cobra.Command) error {
	switch prefix := ls.selected.prefix; {
	case !utf8.ValidString(prefix) || len(prefix) > table.MaxName:
		return terminal.Misuse("no lock name begins with %.40q, because names are valid UTF-8 and at most %d bytes long", prefix, table.MaxName)
	case ls.watch && ls.selected.group != "":
		return terminal.Misuse("give only one of --watch and --group; to watch a group, use spindle watch --prefix %s", terminal.Show(table.GroupPrefix(ls.selected.group)))
	case ls.watch && (ls.f.Objects() || ls.f.Value == terminal.AsName):
		return terminal.Misuse("--watch works only with -o table and -o wide; for changes as JSON, use spindle watch -o json")
	}
	if ls.watch && !c.Flags().Changed("sort") {
		ls.by.Value = "state"
	}
	return ls.selected.check()
}

// print prints the locks that were found, or the group that --group names.
func (ls *listing) print(p *terminal.Terminal, found []operator.Listing) error {
	if ls.selected.group != "" {
		return ls.open(p, found)
	}
	all := ls.entries(found)
	if len(all) == 0 && !ls.f.Objects() {
		fmt.Fprintln(os.Stderr, ls.selected.none())
		return nil
	}
	return ls.write(p, ls.columns(model.LockColumns, model.WideColumns), all)
}

// entries returns an entry for each selected lock and group.
func (ls *listing) entries(found []operator.Listing) (all []model.Entry) {
	locks, groups := model.Gather(found, ls.selected.prefix)
	for _, l := range locks {
		if ls.selected.wants(l) {
			all = append(all, model.LockEntry(l))
		}
	}
	for _, g := range groups {
		if ls.selected.in(g.JSON.State) {
			all = append(all, g.Entry())
		}
	}
	slices.SortFunc(all, func(a, b model.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return sorted(all, ls.by.Value)
}

// open prints the members and partitions of a group.
func (ls *listing) open(p *terminal.Terminal, found []operator.Listing) error {
	_, groups := model.Gather(found, ls.selected.prefix)
	if len(groups) == 0 {
		fmt.Fprintln(os.Stderr, ls.selected.none())
		return &terminal.Exit{Code: terminal.NobodyThere}
	}
	g := groups[0]
	tables := !ls.f.Objects() && ls.f.Value != terminal.AsName
	if tables {
		p.Say(model.Styles[g.JSON.State], fmt.Sprintf("%s is %s: %s", terminal.Show(g.JSON.Name), g.JSON.State, g.Sum()))
		fmt.Fprintln(p)
	}
	g.Members = slices.DeleteFunc(g.Members, func(l operator.Listing) bool { return !ls.selected.wants(l) })
	partitions := slices.DeleteFunc(slices.Clone(g.Partitions), func(l operator.Listing) bool { return !ls.selected.in(l.State()) })
	members := sorted(g.MemberEntries(), ls.by.Value)
	if err := ls.write(p, ls.columns(model.MemberColumns, model.WideMembers), members); err != nil {
		return err
	}
	g.Partitions = partitions
	if tables && len(members) > 0 && len(partitions) > 0 {
		fmt.Fprintln(p)
	}
	return ls.write(p, ls.columns(model.PartitionColumns, model.WidePartitions), sorted(g.PartitionEntries(), ls.by.Value))
}

func (ls *listing) columns(narrow, wide []string) *terminal.Columns {
	if ls.f.Value == terminal.AsWide {
		return &terminal.Columns{Names: wide, Wide: true}
	}
	return &terminal.Columns{Names: narrow}
}

// write prints entries in the format that --output requests.
func (ls *listing) write(to *terminal.Terminal, s *terminal.Columns, all []model.Entry) error {
	tables := !ls.f.Objects() && ls.f.Value != terminal.AsName
	err := to.Buffered(func(p *terminal.Terminal) error {
		if tables && len(all) > 0 {
			s.Print(p, model.Rows(all))
		}
		for _, e := range all {
			if ls.f.Objects() {
				if err := terminal.PrintJSON(p, e.Object); err != nil {
					return err
				}
			} else if !tables {
				fmt.Fprintln(p, terminal.Show(e.Name))
			}
		}
		return nil
	})
	for _, e := range all {
		if err == nil && tables && e.Unreadable != nil {
			terminal.Complain("%v", e.Unreadable)
		}
	}
	return err
}
