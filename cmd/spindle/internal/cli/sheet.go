package cli

import (
	"strings"

	"github.com/spindle-lock/spindle/internal/table"
)

const tokenWidth = 16

// cells are the columns of a lock that people read, but for its holder and value.
func cells(l table.Listing) []string {
	since, beat, lease, token := "-", "-", "-", "-"
	if l.Token != 0 {
		token, since = l.Token.String(), short(l.At.Sub(l.Token.Time()))
	}
	if l.State() == table.Released {
		token = "-" // it is no term's
	}
	if !l.Heartbeat.IsZero() {
		beat = short(l.At.Sub(l.Heartbeat))
	}
	if l.Promise != nil {
		lease = l.Promise.Lease.String()
	}
	return []string{show(l.Name), string(l.State()), token, since, beat, lease}
}

// sheet lays the locks out: each on one line if the width allows it, otherwise on two.
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
	text := show(l.Holder())
	if l.Promise != nil && l.Promise.Value != "" {
		text += "  " + show(l.Promise.Value)
	}
	return text
}
