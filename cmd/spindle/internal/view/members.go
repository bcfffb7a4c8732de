package view

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	groups "github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// NewMembers returns the command members.
func NewMembers(o *connect.Database) *cobra.Command {
	var f terminal.Format
	var partitions bool
	c := &cobra.Command{
		Use:   "members GROUP",
		Short: "Show a group's members and their partitions",
		Long: `Members shows a group's members, except those whose leases have expired, all as
of one instant by Spanner's clock. For each member, it shows the slot, the time
since the member joined, the time since its last heartbeat, and the number of
partitions that it holds. With --partitions, it also names these partitions.
Below the members, it lists the partitions that the members' programs have
paused, and those that once had a holder but have none now.

If members have different lists of partitions, the column LIST shows a letter
for each list, and members with the same letter have the same list. This happens
during a rolling update that changes the list, or because of a configuration
mistake.

Exit codes:
  0    the group has a member
  1    the database could not be read
  2    the command line is wrong
  3    the group has no member`,
		Example: `  spindle members orders
  spindle members orders --partitions
  spindle members orders -o json | jq -r '.members[] | "\(.id) \(.partitions | length)"'`,
		Args:              flags.Exactly(1, "the name of one group"),
		ValidArgsFunction: complete.Groups(o),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := model.GroupNamed(args[0])
			if err != nil {
				return err
			}
			v, err := askMembers(c.Context(), o, name)
			if err != nil {
				return err
			}
			if f.Objects() {
				err = terminal.PrintJSON(os.Stdout, viewOf(name, v))
			} else {
				printMembers(terminal.On(os.Stdout), name, v, partitions)
			}
			if err == nil && len(v.Members) == 0 {
				return &exit.Error{Code: exit.NobodyThere}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&partitions, "partitions", "p", false, "name the partitions of each member")
	f.Flag(c.Flags())
	return c
}

func askMembers(ctx context.Context, o *connect.Database, name string) (v groups.View, err error) {
	err = o.With(ctx, func(ctx context.Context, db *connect.Connection) (err error) {
		defer o.Audible()()
		v, err = groups.Members(ctx, db.Client(), o.Table, name)
		return err
	})
	return v, err
}

// fewNames is the largest number of paused or unassigned partitions that are named without --partitions.
const fewNames = 50

func printMembers(p *terminal.Terminal, name string, v groups.View, partitions bool) {
	all := len(v.Unassigned)
	var paused []string
	lists := map[string]string{} // a letter for each
	for _, m := range v.Members {
		all += len(m.Partitions) + len(m.Paused)
		paused = append(paused, m.Paused...)
		if lists[m.List] == "" {
			lists[m.List] = string(rune('A' + len(lists)%26))
		}
	}
	if all == 0 && len(v.Members) == 0 {
		fmt.Fprintf(os.Stderr, "Group %s has no members, and none of its partitions has ever been held.\n", terminal.Show(name))
		return
	}
	titles := []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS"}
	if len(lists) > 1 {
		titles = append(titles, "LIST")
	}
	for _, line := range terminal.Wrap(fmt.Sprintf("Group %s has %s and %s", terminal.Show(name), terminal.Count(len(v.Members), "member"), terminal.Count(all, "partition")), p.ReadableWidth()) {
		fmt.Fprintln(p, line)
	}
	var rows []terminal.Row
	for _, m := range v.Members {
		state := operator.Held
		if m.Leaving {
			state = operator.Leaving
		}
		r := terminal.Row{Style: model.Styles[state], Tail: terminal.Show(m.ID)}
		if m.Value != "" {
			r.Tail += "  " + terminal.Show(m.Value)
		}
		if partitions {
			r.Below = model.Names(m.Partitions)
		}
		r.Cells = []string{fmt.Sprintf("%04d", m.Slot), string(state), m.Token.String(), terminal.Short(v.At.Sub(m.Since)), terminal.Short(v.At.Sub(m.Heartbeat)),
			m.Lease.String(), fmt.Sprint(len(m.Partitions))}
		if len(lists) > 1 {
			r.Cells = append(r.Cells, lists[m.List])
		}
		rows = append(rows, r)
	}
	if len(rows) > 0 {
		fmt.Fprintln(p)
		slots := terminal.Columns{Names: append(titles, "ID AND VALUE")}
		for _, line := range slots.Lines(p, rows) {
			fmt.Fprintln(p, line)
		}
	}
	printNames(p, "Paused partitions", paused, partitions)
	printNames(p, "Partitions without a holder", v.Unassigned, partitions)
}

// printNames prints a line with the names of partitions that nobody has, if there are any.
func printNames(p *terminal.Terminal, what string, names []string, all bool) {
	if len(names) == 0 {
		return
	}
	line := fmt.Sprintf("%s (%d): ", what, len(names)) + model.Names(names)
	if more := len(names) - fewNames; more > 0 && !all {
		some := slices.SortedFunc(slices.Values(names), model.ByNumber)[:fewNames]
		line = fmt.Sprintf("%s (%d): %s and %d more (use --partitions to see all)", what, len(names), model.Names(some), more)
	}
	fmt.Fprintln(p)
	for _, line := range terminal.Wrap(line, p.ReadableWidth()) {
		fmt.Fprintln(p, p.Paint(terminal.Amber, line))
	}
}

// MembersJSON is the JSON form of a group's members.
type MembersJSON struct {
	Group      string       `json:"group"`
	At         time.Time    `json:"at"`
	Members    []memberJSON `json:"members"`
	Unassigned []string     `json:"unassigned"` // the partitions that no member has
}

type memberJSON struct {
	Slot       int       `json:"slot"`
	Name       string    `json:"name"` // of its lock
	ID         string    `json:"id"`
	Value      string    `json:"value,omitempty"`
	Token      string    `json:"token"`
	Since      time.Time `json:"since"`
	Heartbeat  time.Time `json:"heartbeat"`
	Age        float64   `json:"heartbeat_age_seconds"`
	Lease      float64   `json:"lease_seconds"`
	Leaving    bool      `json:"leaving"`
	List       string    `json:"list"`
	Partitions []string  `json:"partitions"`
	Paused     []string  `json:"paused"`
}

func viewOf(name string, v groups.View) MembersJSON {
	sorted := func(partitions []string) []string {
		return append([]string{}, slices.SortedFunc(slices.Values(partitions), model.ByNumber)...) // none is []
	}
	j := MembersJSON{Group: name, At: v.At.UTC(), Members: []memberJSON{}, Unassigned: sorted(v.Unassigned)}
	for _, m := range v.Members {
		j.Members = append(j.Members, memberJSON{m.Slot, table.SlotName(name, m.Slot), m.ID, m.Value, m.Token.String(), m.Since.UTC(), m.Heartbeat.UTC(),
			v.At.Sub(m.Heartbeat).Seconds(), m.Lease.Seconds(), m.Leaving, m.List, sorted(m.Partitions), sorted(m.Paused)})
	}
	return j
}
