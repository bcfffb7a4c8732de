// Package inspect has the commands that look once: ls, status and members.
//
//   - ls.go, lswatch.go: ls, and ls --watch
//   - selection.go: which locks it lists; order.go: in which order; choice.go: flags for both
//   - status.go, members.go: the other two
package inspect

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

const lsHelp = `Ls lists the locks in the table as they are at one instant, or only those whose
names begin with PREFIX. It leaves out released locks that nobody waits for,
unless --all is given. With --held it lists only held locks, and with --state
only locks in these states. For a single lock, use spindle status: it also says
which processes wait for it.

SINCE is how long ago the term began, or the lock was released. BEAT is how long
ago the last heartbeat was; a holder sends three in a lease. Both are by
Spanner's clock alone. If the holder's id and value don't fit on the line, they
are on a second line. What was done last under a lock (exec --every, --once, or
lock.Once) is below it. Names that don't fit are cut in the middle, unless
--no-trunc is given. -o wide has one line for each lock, however long it is.

"3 waiting, 12s the longest" is how many processes wait for the lock, by package
lock. Those that wait for a semaphore are shown at its first listed slot.

--sort age has the oldest first, beat the longest silent, lease the longest,
waiting the most waited for, and state the worst.

A group of package group is one line: how many members and partitions it has,
and how many of these have no holder. --group opens it: its members, each with
its partitions, and then every partition. A partition's state is its member's.
A group is listed even if nobody is in it any more, unless --held or --state
leaves it out.

With --watch ls runs until it is interrupted. It looks again after each --every,
and prints the line of each lock that has changed, whatever its new state is.
Heartbeats and waiters are no changes. It misses a term that begins and ends
between two looks.

-o json is one object on each line, -o yaml one document for each: spindle
schema says what is in them. -o name has the names alone, as bash and zsh read
them.

`

// NewLs returns the command ls.
func NewLs(o *connect.Database) *cobra.Command {
	ls := &listing{Database: o}
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: lsHelp + states.Help + `
  partial      a group: some of its partitions have no holder
` + flags.CommonCodes + `
  3    there is no group that --group names`,
		Example: `  spindle ls
  spindle ls billing/ --held
  spindle ls --state expired,orphaned --sort age
  spindle ls --group orders
  spindle ls --watch -o json
  spindle ls --all -o json | jq -r 'select(.state != "held") | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %q: want one prefix of names, or none for all locks", args)
			}
			return nil
		},
		ValidArgsFunction: complete.Locks(o),
		RunE: func(c *cobra.Command, args []string) error {
			ls.show.prefix = strings.Join(args, "")
			if err := ls.check(c); err != nil {
				return err
			}
			if ls.watch {
				return ls.follow(c.Context())
			}
			return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error {
				found, _, err := t.List(ctx, ls.show.prefix, ls.show.idle())
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
	*connect.Database
	show    selection
	f       terminal.Format
	by      choice
	reverse bool
	bare    bool
	whole   bool
	watch   bool
	every   time.Duration
}

func (ls *listing) flags(c *cobra.Command) {
	ls.by = choice{"name", orderNames}
	ls.show.states.of = states.All
	f := c.Flags()
	f.BoolVarP(&ls.show.all, "all", "a", false, "list released locks too")
	f.BoolVar(&ls.show.held, "held", false, "list only locks that are held")
	f.Var(&ls.show.states, "state", "list only locks in these `states`, with commas between them")
	f.StringVar(&ls.show.group, "group", "", "list the members and partitions of this `group`")
	f.Var(&ls.by, "sort", "sort by this `key`: "+terminal.OneOf(orderNames))
	f.BoolVarP(&ls.reverse, "reverse", "r", false, "sort the other way round")
	ls.f.Flag(f, terminal.AsWide, terminal.AsName, terminal.AsYAML)
	f.BoolVar(&ls.bare, "no-headers", false, "leave out the line of headings")
	f.BoolVar(&ls.whole, "no-trunc", false, "cut nothing, even if lines are longer than the terminal is wide")
	f.BoolVarP(&ls.watch, "watch", "w", false, "keep running, and print each lock that changes")
	f.DurationVar(&ls.every, "every", 2*time.Second, "how long to pause between two looks of --watch")
	flags.OnlyOnCommandLine(f, "state", "group", "reverse", "watch", "every")
}

func (ls *listing) check(c *cobra.Command) error {
	switch prefix := ls.show.prefix; {
	case !utf8.ValidString(prefix) || len(prefix) > table.MaxName:
		return exit.Misuse("no lock has a name that begins with %.40q: names are up to %d bytes of UTF-8", prefix, table.MaxName)
	case c.Flags().Changed("every") && !ls.watch:
		return exit.Misuse("--every %v: is the pause of --watch, which is missing", ls.every)
	case ls.watch && ls.show.group != "":
		return exit.Misuse("--watch and --group: give one of them; spindle watch --group %s follows a group", terminal.Show(ls.show.group))
	case ls.every < 100*time.Millisecond:
		return exit.Misuse("--every %v: must be at least 100ms", ls.every)
	}
	return ls.show.check()
}

// print prints what was found.
func (ls *listing) print(p *terminal.Terminal, found []table.Listing) error {
	if ls.show.group != "" {
		return ls.open(p, found)
	}
	all := ls.entries(found)
	if len(all) == 0 && !ls.f.Objects() {
		fmt.Fprintln(os.Stderr, ls.show.none())
		return nil
	}
	return ls.write(p, ls.columns(describe.LockColumns, describe.WideColumns), all)
}

// entries returns one for each lock, and one for each group.
func (ls *listing) entries(found []table.Listing) (all []describe.Entry) {
	locks, groups := describe.Gather(found, ls.show.prefix)
	for _, l := range locks {
		if ls.show.wants(l) {
			all = append(all, describe.LockEntry(l))
		}
	}
	for _, g := range groups {
		if ls.show.wantsGroup(g) {
			all = append(all, g.Entry())
		}
	}
	slices.SortFunc(all, func(a, b describe.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return sorted(all, ls.by.value, ls.reverse)
}

// open prints the members and partitions of a group.
func (ls *listing) open(p *terminal.Terminal, found []table.Listing) error {
	_, groups := describe.Gather(found, ls.show.prefix)
	if len(groups) == 0 {
		fmt.Fprintln(os.Stderr, ls.show.none())
		return &exit.Error{Code: exit.NobodyThere}
	}
	g := groups[0]
	tables := !ls.f.Objects() && !ls.f.Is(terminal.AsName)
	if tables && !ls.bare {
		for _, line := range terminal.Wrap(fmt.Sprintf("%s is %s: %s", terminal.Show(g.Prefix), g.State(), g.Sum()), p.ReadableWidth()) {
			fmt.Fprintln(p, p.Paint(states.Styles[g.State()], line))
		}
		fmt.Fprintln(p)
	}
	g.Members = slices.DeleteFunc(g.Members, func(l table.Listing) bool { return !ls.show.wants(l) })
	partitions := slices.DeleteFunc(slices.Clone(g.Partitions), func(l table.Listing) bool { return !ls.show.wantsPart(l) })
	members := sorted(g.MemberEntries(), ls.by.value, ls.reverse)
	if err := ls.write(p, ls.columns(describe.MemberColumns, describe.WideMembers), members); err != nil {
		return err
	}
	g.Partitions = partitions
	if tables && len(members) > 0 && len(partitions) > 0 {
		fmt.Fprintln(p)
	}
	return ls.write(p, ls.columns(describe.PartitionColumns, describe.WidePartitions), sorted(g.PartitionEntries(), ls.by.value, ls.reverse))
}

func (ls *listing) columns(narrow, wide []string) *terminal.Columns {
	if ls.f.Is(terminal.AsWide) {
		return &terminal.Columns{Names: wide, Bare: ls.bare, Whole: true, Wide: true}
	}
	return &terminal.Columns{Names: narrow, Bare: ls.bare, Whole: ls.whole}
}

// write prints entries in the format that was asked for.
func (ls *listing) write(to *terminal.Terminal, s *terminal.Columns, all []describe.Entry) error {
	out := bufio.NewWriter(to)
	p := *to
	p.Writer = out
	switch {
	case ls.f.Objects():
		for _, e := range all {
			if err := ls.f.Print(&p, e.Object); err != nil {
				return err
			}
		}
		return out.Flush()
	case ls.f.Is(terminal.AsName):
		for _, e := range all {
			fmt.Fprintln(&p, terminal.Show(e.Name))
		}
		return out.Flush()
	case len(all) == 0:
		return nil
	}
	for _, line := range s.Lines(&p, describe.Rows(all)) {
		fmt.Fprintln(&p, line)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for _, e := range all {
		if e.Trouble != nil {
			terminal.Complain("%v", e.Trouble)
		}
	}
	return nil
}
