package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

const statesHelp = `The states, by Spanner's clock:
  held         its holder was heard of within its lease
  expired      its holder was not: the next candidate that looks has it
  released     its last holder gave it back
  unconfirmed  it is claimed, and the claimant may not act yet
  orphaned     somebody deleted its row, and the lease row is left
  unreadable   its lease row does not say how long the holder may act`

func newLs(o *common) *cobra.Command {
	var f format
	var everything bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the locks in the table",
		Long: `Ls lists the locks in the table, as they are at one instant. Those that were
released are listed with --all.

SINCE is how long ago the term began, or the lock was released, and BEAT how old the last heartbeat is, of
which there are three in a lease. No clock of yours matters for either. A second
line has the holder's id and its value, where they don't fit beside the rest.

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
				return list(paperOn(os.Stdout), f, all)
			})
		},
	}
	f.flag(c.Flags())
	c.Flags().BoolVarP(&everything, "all", "a", false, "list released locks, too")
	return c
}

func list(p *paper, f format, all []table.Listing) error {
	if f == asJSON {
		for _, l := range all {
			if err := printJSON(p, jsonOf(l)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintln(os.Stderr, "There are no locks in the table, apart from released ones that --all shows.")
		return nil
	}
	for _, line := range sheet(p, all) {
		fmt.Fprintln(p, line)
	}
	for _, l := range all {
		if l.Unreadable != nil {
			fmt.Fprintln(os.Stderr, "spindle:", l.Unreadable)
		}
	}
	return nil
}

const tokenWidth = 16

// cells are the columns of a lock that people read, but for its holder and value.
func cells(l table.Listing) []string {
	since, beat, lease, token := "-", "-", "-", "-"
	if l.Token != 0 {
		token, since = spindle.Token(l.Token).String(), short(l.At.Sub(l.Token.Time()))
	}
	if l.State() == table.Released {
		token = "-" // it is of no term
	}
	if !l.Heartbeat.IsZero() {
		beat = short(l.At.Sub(l.Heartbeat))
	}
	if l.Promise != nil {
		lease = l.Promise.Lease.String()
	}
	return []string{show(l.Name), string(l.State()), token, since, beat, lease}
}

// sheet lays the locks out: each on one line if the width allows it, and else on two.
func sheet(p *paper, all []table.Listing) []string {
	rows := [][]string{{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE"}}
	widths := make([]int, len(rows[0]))
	tail := 0
	for _, l := range all {
		rows = append(rows, cells(l))
		tail = max(tail, length(whose(l)))
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], length(cell))
		}
	}
	rest := 0
	for _, w := range widths[1:] {
		rest += 2 + w
	}
	oneLine := p.width == 0 || widths[0]+rest+2+max(tail, len("HOLDER AND VALUE")) <= p.width
	if !oneLine {
		widths[0] = min(widths[0], max(p.width-rest, 8))
	}

	var lines []string
	for i, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			text := fit(cell, widths[j])
			if j < len(row)-1 {
				text = pad(text, widths[j]+2)
			}
			switch {
			case i == 0:
				text = p.paint(faint, text)
			case j == 0:
				text = p.paint(bold, text)
			case j == 1:
				text = p.paint(styles[all[i-1].State()], text)
			}
			b.WriteString(text)
		}
		last := pad("", widths[len(widths)-1]+2-length(row[len(row)-1]))
		switch {
		case i == 0 && oneLine:
			b.WriteString(last + p.paint(faint, "HOLDER AND VALUE"))
		case i > 0 && oneLine && whose(all[i-1]) != "":
			b.WriteString(last + whose(all[i-1]))
		}
		lines = append(lines, b.String())
		if i > 0 && !oneLine && whose(all[i-1]) != "" {
			lines = append(lines, "  "+fit(whose(all[i-1]), p.width-2))
		}
	}
	return lines
}

// whose is the holder of a lock and what it published.
func whose(l table.Listing) string {
	text := show(l.Writer)
	if l.Promise != nil && l.Promise.Value != "" {
		text += "  " + show(l.Promise.Value)
	}
	return text
}
