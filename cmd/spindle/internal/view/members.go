package view

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const membersHelp = `Members shows a group's members as of one instant by Spanner's clock, except
those whose leases have expired. For each member, it shows the slot, the time
since the member joined, the time since its last heartbeat, and the number of
partitions that it holds. With --partitions, it also names these partitions.
Below the members, it lists the partitions that the members' programs have
paused, and those that once had a holder but have none now.

If members have different lists of partitions, the column LIST shows a letter
for each list, and members with the same letter have the same list. Lists differ
during a rolling update that changes the list, or because of a configuration
mistake.

Exit codes:
  0    the group has a member
  1    the database could not be read
  2    the command line is wrong
  3    the group has no member`

// NewMembers returns the command members.
func NewMembers(o *database.Database) *cobra.Command {
	var f terminal.Format
	var partitions bool
	c := &cobra.Command{
		Use:   "members GROUP",
		Short: "Show a group's members and their partitions",
		Long:  membersHelp,
		Example: `  spindle members orders
  spindle members orders --partitions
  spindle members orders -o json | jq -r '.members[] | "\(.id) \(.partitions | length)"'`,
		Args: terminal.Exactly(1, "the name of one group"),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := model.GroupNamed(args[0])
			if err != nil {
				return err
			}
			var g *model.Group
			if err := o.WithTable(c.Context(), func(ctx context.Context, t table.Table) (err error) {
				g, err = readGroup(ctx, t, name)
				return err
			}); err != nil {
				return err
			}
			if f.Objects() {
				err = terminal.PrintJSON(os.Stdout, membersOf(g))
			} else {
				err = terminal.On(os.Stdout).Buffered(func(p *terminal.Terminal) error { printMembers(p, g, partitions); return nil })
			}
			if err == nil && len(g.Members) == 0 {
				return &terminal.Exit{Code: terminal.NobodyThere}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&partitions, "partitions", "p", false, "name the partitions of each member")
	f.Flag(c.Flags())
	return c
}

func paused(l operator.Listing) bool     { return l.State() == operator.Paused }
func unassigned(l operator.Listing) bool { return !l.IsHeld() && !paused(l) }

// readGroup reads a group, with only those members that have sent a heartbeat within their leases.
func readGroup(ctx context.Context, t table.Table, name string) (*model.Group, error) {
	found, at, err := operator.ListGroup(ctx, t, name)
	if err != nil {
		return nil, err
	}
	g := &model.Group{JSON: model.GroupJSON{Group: name, At: at.UTC()}}
	if _, groups := model.Gather(found, ""); len(groups) > 0 {
		g = groups[0]
	}
	g.Members = slices.DeleteFunc(g.Members, func(l operator.Listing) bool { return !l.IsHeld() })
	for i := range g.Members {
		l := &g.Members[i]
		l.Began = cmp.Or(l.LeaseRecord.Since, l.Token).Time() // when it joined
	}
	return g, nil
}

// fewNames is the largest number of paused or unassigned partitions that are named without --partitions.
const fewNames = 50

// letters returns the n-th of A, B, ..., Z, AA, BB and so on.
func letters(n int) string { return strings.Repeat(string(rune('A'+n%26)), n/26+1) }

func printMembers(p *terminal.Terminal, g *model.Group, partitions bool) {
	if len(g.Partitions) == 0 && len(g.Members) == 0 {
		fmt.Fprintf(os.Stderr, "Group %s has no members, and none of its partitions has ever been held.\n", terminal.Show(g.JSON.Group))
		return
	}
	p.Say(nil, fmt.Sprintf("Group %s has %s and %s", terminal.Show(g.JSON.Group), terminal.Count(len(g.Members), "member"), terminal.Count(len(g.Partitions), "partition")))
	lists := map[string]string{} // a letter for each
	for _, l := range g.Members {
		if list := l.LeaseRecord.ListDigest; lists[list] == "" {
			lists[list] = letters(len(lists))
		}
	}
	slots, rows := terminal.Columns{Names: model.MemberColumns}, model.Rows(g.MemberEntries())
	if len(lists) > 1 {
		slots.Names = slices.Insert(slices.Clone(slots.Names), len(slots.Names)-1, "LIST")
	}
	for i := range rows {
		if len(lists) > 1 {
			rows[i].Cells = append(rows[i].Cells, lists[g.Members[i].LeaseRecord.ListDigest])
		}
		if !partitions {
			rows[i].Below = ""
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(p)
		slots.Print(p, rows)
	}
	printNames(p, "Paused partitions", g.Named(paused), partitions)
	printNames(p, "Partitions without a holder", g.Named(unassigned), partitions)
}

func printNames(p *terminal.Terminal, what string, names []string, all bool) {
	if len(names) == 0 {
		return
	}
	line := fmt.Sprintf("%s (%d): ", what, len(names)) + model.Names(names)
	if more := len(names) - fewNames; more > 0 && !all {
		line = fmt.Sprintf("%s (%d): %s and %d more (use --partitions to see all)", what, len(names), model.Names(names[:fewNames]), more)
	}
	fmt.Fprintln(p)
	p.Say(terminal.Amber, line)
}

// MembersJSON is the JSON form of a group's members.
type MembersJSON struct {
	Group      string       `json:"group"`      // the group's name
	At         time.Time    `json:"at"`         // when all of this was read, by Spanner's clock
	Members    []memberJSON `json:"members"`    // the members that have renewed within their leases
	Unassigned []string     `json:"unassigned"` // the partitions that no member has
}

// memberJSON is the JSON form of a member of a group.
type memberJSON struct {
	Slot       int       `json:"slot" schema:"minimum=0"`           // its slot
	Name       string    `json:"name"`                              // the name of its lock
	ID         string    `json:"id"`                                // its id
	Value      string    `json:"value,omitempty"`                   // what it published
	Token      string    `json:"token" schema:"pattern=^-?[0-9]+$"` // the token of its term
	Since      time.Time `json:"since"`                             // when it joined
	Heartbeat  time.Time `json:"heartbeat"`                         // its last heartbeat
	Age        float64   `json:"heartbeat_age_seconds"`             // its age
	Lease      float64   `json:"lease_seconds"`                     // its lease
	Leaving    bool      `json:"leaving"`                           // it has announced that it leaves
	List       string    `json:"list"`                              // a digest of its list of partitions: members with different digests have different lists
	Partitions []string  `json:"partitions"`                        // the partitions that it has
	Paused     []string  `json:"paused"`                            // the partitions that its program has paused
}

func membersOf(g *model.Group) MembersJSON {
	j := MembersJSON{Group: g.JSON.Group, At: g.JSON.At, Members: []memberJSON{}, Unassigned: g.Named(unassigned)}
	has, pauses := g.Has(operator.Held, operator.Leaving), g.Has(operator.Paused)
	for _, l := range g.Members {
		part, _ := table.PartOf(l.Name)
		m := model.JSONOf(l)
		j.Members = append(j.Members, memberJSON{part.Slot, m.Name, m.Holder, m.Value, m.Token, m.Since, m.Heartbeat, *m.AgeSeconds, m.LeaseSeconds, l.Leaving(),
			l.LeaseRecord.ListDigest, append([]string{}, has[l.Name]...), append([]string{}, pauses[l.Name]...)}) // none is []
	}
	return j
}
