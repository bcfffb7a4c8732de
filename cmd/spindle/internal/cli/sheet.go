package cli

import (
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/internal/stage"
	"github.com/spindle-lock/spindle/internal/table"
)

const tokenWidth = 16

// An entry is one thing in a list: a lock, say.
type entry struct {
	name    string   // by which the list is sorted
	cells   []string // for people: what it is, its state, and other columns
	state   table.State
	tail    string // what comes last, and may be long
	below   string // what is below it
	json    any    // the same for scripts
	trouble error
}

var lockColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HOLDER AND VALUE"}

func lockEntry(l table.Listing) entry {
	return entry{name: l.Name, cells: cells(l), state: l.State(), tail: joined("  ", whose(l), waiting(l)), below: doneLine(l), json: jsonOf(l), trouble: l.Unreadable}
}

// joined puts a separator between the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// cells are the columns of a lock for people, without its holder and value.
func cells(l table.Listing) []string {
	since, beat, lease, token := "-", "-", "-", "-"
	if l.Token != 0 {
		token, since = l.Token.String(), short(l.At.Sub(l.Since()))
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

// sheet lays entries out under their columns. The last column has the tails. Each entry is on one line if the width
// allows that for all, and otherwise on two.
func sheet(p *paper, columns []string, all []entry) []string {
	columns, last := columns[:len(columns)-1], columns[len(columns)-1]
	rows := [][]string{columns}
	widths := make([]int, len(columns))
	tail := 0
	for _, e := range all {
		rows = append(rows, e.cells)
		tail = max(tail, length(e.tail))
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
	oneLine := p.width == 0 || widths[0]+rest+2+max(tail, len(last)) <= p.width
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
				text = p.paint(styles[all[i-1].state], text)
			}
			b.WriteString(text)
		}
		gap := pad("", widths[len(widths)-1]+2-length(row[len(row)-1]))
		switch {
		case i == 0 && oneLine:
			b.WriteString(gap + p.paint(faint, last))
		case i > 0 && oneLine && all[i-1].tail != "":
			b.WriteString(gap + all[i-1].tail)
		}
		lines = append(lines, b.String())
		if i > 0 && !oneLine && all[i-1].tail != "" {
			lines = append(lines, "  "+fit(all[i-1].tail, p.width-2))
		}
		if i > 0 && all[i-1].below != "" {
			for _, line := range stage.Wrap(all[i-1].below, width(p)-2) {
				lines = append(lines, "  "+line)
			}
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
