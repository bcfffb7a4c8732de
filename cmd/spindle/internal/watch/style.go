package watch

import (
	"charm.land/lipgloss/v2"

	"github.com/spindle-lock/spindle/internal/table"
)

// The styles are of the terminal's own sixteen colours. What they say is in the text too: there may be no colours.
var (
	plain = lipgloss.NewStyle()
	bold  = plain.Bold(true)
	faint = plain.Faint(true)
	green = plain.Foreground(lipgloss.Green)
	amber = plain.Foreground(lipgloss.Yellow)
	red   = plain.Foreground(lipgloss.Red)
	alarm = plain.Foreground(lipgloss.Red).Bold(true).Reverse(true)
)

var styles = map[table.State]lipgloss.Style{
	table.Held: green, table.Leaving: amber, table.Expired: red, table.Released: faint, table.Unconfirmed: amber,
	table.Orphaned: red, table.Unreadable: red, table.Free: faint, Partial: amber,
}
