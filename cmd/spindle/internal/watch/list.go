package watch

import (
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// listRoom returns how many rows of locks fit on the screen.
func (m Model) listRoom() int {
	room := m.height - len(m.head()) - m.footHeight()
	if !m.small() {
		room-- // the heading
	}
	return max(room, 1)
}

// list draws the rows that are on the screen and, if there is room, the last changes below them.
func (m Model) list(room int) (lines []string) {
	c := columnsFor(m.width, m.widths)
	if !m.small() {
		lines = append(lines, terminal.Faint.Styled(c.heading()))
	}
	if len(m.rows) == 0 {
		return append(lines, terminal.WrapLines(m.empty(), m.width)...)
	}
	end := min(m.offset+m.listRoom(), len(m.rows))
	for i := m.offset; i < end; i++ {
		lines = append(lines, m.row(c, m.rows[i], i == m.cursor))
	}
	return append(lines, m.lastChanges(room-len(lines))...)
}

func (m Model) empty() string {
	switch {
	case m.last.Read.IsZero():
		return ""
	case m.filter != "":
		return "No listed lock matches " + m.filter + ". Press Esc to show all."
	case m.hidden > 0:
		return "No lock is in use."
	}
	return m.None
}

const (
	fewChanges = 3 // the fewest changes that are worth a heading
	gap        = 2 // between columns
	stateWidth = 11
	tokenWidth = 16
	sinceWidth = 6
	leaseWidth = 18 // "ran out 12d03h ago"
	mark       = 2
)

// columns has the widths of the columns of a row. A column of width 0 is not shown.
type columns struct{ state, label, holder, token, since, lease, bar int }

// columnsFor divides the width of the screen among the columns. If there is not enough room, it leaves columns out, but
// always keeps the name and the state.
func columnsFor(width int, w widths) (c columns) {
	if width < 36 {
		c.state = 8
		c.label = max(width-mark-c.state-1, 1)
		return c
	}
	c.state = stateWidth
	rest := width - mark - c.state - gap
	if width >= 60 {
		c.since, c.lease, c.bar = sinceWidth, leaseWidth, 10
	}
	if width >= 140 {
		c.token, c.lease, c.bar = tokenWidth, leaseWidth+8, 18
	}
	for _, column := range []int{c.token, c.since, c.lease} {
		if column > 0 {
			rest -= column + gap
		}
	}
	label, holder := max(w.label, len("LOCK")), max(w.holder, len("HOLDER"))
	rest -= gap
	c.label = min(label, max(rest-holder, rest*11/20))
	c.holder = max(min(holder, rest-c.label), 0)
	return c
}

// line joins the cells of a row. It leaves out cells whose column is not shown.
func (c columns) line(state, label, holder, token, since, lease string) string {
	var b strings.Builder
	between := strings.Repeat(" ", gap)
	if c.holder == 0 {
		between = " "
	}
	b.WriteString(state + between + label)
	for _, column := range []struct {
		width int
		text  string
	}{{c.holder, holder}, {c.token, token}, {c.since, since}, {c.lease, lease}} {
		if column.width > 0 {
			b.WriteString(between + column.text)
		}
	}
	return b.String()
}

func (c columns) heading() string {
	return "  " + c.line(cell("STATE", c.state), cell("LOCK", c.label), cell("HOLDER", c.holder), cell("TOKEN", c.token), cell("SINCE", c.since), "LEASE")
}

func (m Model) row(c columns, r *Row, chosen bool) string {
	marked, label := "  ", cell(terminal.Fit(r.Label, c.label), c.label)
	if chosen {
		marked, label = terminal.Bold.Styled("> "), terminal.Bold.Styled(label)
	}
	token := "-"
	if r.Token != 0 {
		token = r.Token.String()
	}
	return marked + c.line(m.paint(states.Styles[r.State], cell(string(r.State), c.state)), label,
		cell(r.holderText(), c.holder), cell(token, c.token), cell(r.Since, c.since), m.lease(r, c.bar))
}

// lease returns the lease bar of a held lock, or how long ago an expired lease ran out, as of the last read.
func (m Model) lease(r *Row, width int) string {
	switch {
	case r.Group || r.Lease == 0 || width == 0:
		return ""
	case r.State == operator.Expired:
		return m.paint(terminal.Red, "ran out "+r.Ends+" ago")
	case r.State != operator.Held && r.State != operator.Leaving:
		return ""
	}
	share := float64(r.Left) / float64(r.Lease)
	colour := terminal.Green
	switch {
	case r.late():
		colour = terminal.Red
	case share < 0.6: // a heartbeat is late
		colour = terminal.Amber
	}
	return m.paint(colour, bar(share, width)) + " " + r.Ends
}

// lastChanges fills the rest of the screen with the last changes.
func (m Model) lastChanges(room int) []string {
	n := min(room-2, len(m.changes))
	if n < 1 || room < fewChanges+2 || m.small() {
		return nil
	}
	lines := []string{"", terminal.Faint.Styled("CHANGES (c: all)")}
	return append(lines, changeLines(m.changes[len(m.changes)-n:], m.width)...)
}

func changeLines(changes []Change, width int) (lines []string) {
	for _, c := range changes {
		head := c.At.UTC().Format("15:04:05.0") + "  "
		name := terminal.Fit(c.Label, max(width/2-len(head), 8))
		room := max(width-terminal.Length(head+name)-gap, 0)
		lines = append(lines, terminal.Faint.Styled(head)+name+"  "+states.Styles[c.State].Styled(terminal.Cut(c.Text, room)))
	}
	return lines
}
