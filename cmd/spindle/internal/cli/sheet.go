package cli

import (
	"strings"
)

const (
	tokenWidth = 16
	leastName  = 8 // columns for a name: with fewer, each entry is a card
)

// A sheet lays entries out under its columns. The last column has the tails.
type sheet struct {
	columns []string
	bare    bool // without the line of headings
	whole   bool // nothing is cut
	wide    bool // one line each, with the further columns, however long it is

	begun   bool // what comes next belongs under the same columns
	widths  []int
	oneLine bool
	cards   bool
}

// lines lays out the entries: on one line each if the width allows that for all of them, on two otherwise, and as cards of several
// lines if even the columns don't fit. Entries of a later call are laid out as the first ones.
func (s *sheet) lines(p *paper, all []entry) []string {
	rows := make([][]string, len(all))
	for i, e := range all {
		if rows[i] = e.cells; s.wide {
			rows[i] = append(rows[i][:len(rows[i]):len(rows[i])], e.more...)
		}
	}
	s.measure(p, rows, all)
	var lines []string
	if !s.begun && !s.bare && !s.cards {
		lines = append(lines, s.heading(p))
	}
	s.begun = true
	for i, e := range all {
		if s.cards {
			lines = append(lines, s.card(p, rows[i], e)...)
		} else {
			lines = append(lines, s.line(p, rows[i], e)...)
		}
		if e.below != "" && !s.wide {
			for _, line := range wrap(e.below, width(p)-2) {
				lines = append(lines, "  "+line)
			}
		}
	}
	return lines
}

func (s *sheet) headings() []string { return s.columns[:len(s.columns)-1] }

func (s *sheet) tail(e entry) string {
	if s.wide {
		return e.last
	}
	return e.tail
}

// measure finds the widths of the columns, and whether all is on one line.
func (s *sheet) measure(p *paper, rows [][]string, all []entry) {
	if !s.begun {
		s.widths = make([]int, len(s.headings()))
		if !s.bare {
			rows = append([][]string{s.headings()}, rows...)
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 || !s.begun || s.oneLine || s.whole {
				s.widths[i] = max(s.widths[i], length(cell))
			}
		}
	}
	if s.begun {
		return
	}
	rest, tail := 0, len(s.columns[len(s.columns)-1])
	for _, w := range s.widths[1:] {
		rest += 2 + w
	}
	for _, e := range all {
		tail = max(tail, length(s.tail(e)))
	}
	s.oneLine = p.width == 0 || s.wide || s.widths[0]+rest+2+tail <= p.width
	s.cards = !s.oneLine && min(s.widths[0], leastName)+rest > p.width
	if !s.oneLine && !s.whole {
		s.widths[0] = min(s.widths[0], max(p.width-rest, leastName))
	}
}

func (s *sheet) heading(p *paper) string {
	var b strings.Builder
	for i, title := range s.headings() {
		text := fit(title, s.widths[i])
		if i < len(s.widths)-1 {
			text = pad(text, s.widths[i]+2)
		}
		b.WriteString(p.paint(faint, text))
	}
	if s.oneLine {
		last := len(s.widths) - 1
		b.WriteString(pad("", s.widths[last]+2-length(fit(s.headings()[last], s.widths[last]))) + p.paint(faint, s.columns[len(s.columns)-1]))
	}
	return b.String()
}

// line is an entry under the columns, with its tail behind or below them.
func (s *sheet) line(p *paper, row []string, e entry) []string {
	var b strings.Builder
	for i, cell := range row {
		text := fit(cell, s.widths[i])
		if i < len(row)-1 {
			text = pad(text, s.widths[i]+2)
		}
		switch i {
		case 0:
			text = p.paint(bold, text)
		case 1:
			text = p.paint(styles[e.state], text)
		}
		b.WriteString(text)
	}
	tail := s.tail(e)
	if tail == "" {
		return []string{b.String()}
	}
	if !s.oneLine {
		return append([]string{b.String()}, s.beneath(tail, e, p)...)
	}
	last := len(row) - 1
	return []string{b.String() + pad("", s.widths[last]+2-length(fit(row[last], s.widths[last]))) + tail}
}

// card is an entry on a terminal that is too narrow for the columns.
func (s *sheet) card(p *paper, row []string, e entry) []string {
	lines := []string{p.paint(bold, s.cut(row[0], p.width)), "  " + p.paint(styles[e.state], row[1])}
	facts := ""
	for i, title := range s.headings() {
		if i < 2 || row[i] == "-" {
			continue
		}
		fact := strings.ToLower(title) + " " + row[i]
		if facts != "" && length(facts)+2+length(fact) > p.width-2 {
			lines = append(lines, indented(facts, p.width)...)
			facts = ""
		}
		facts = joined(", ", facts, fact)
	}
	if facts != "" {
		lines = append(lines, indented(facts, p.width)...)
	}
	if tail := s.tail(e); tail != "" {
		lines = append(lines, s.beneath(tail, e, p)...)
	}
	return lines
}

// beneath is the tail of an entry on lines of its own.
func (s *sheet) beneath(tail string, e entry, p *paper) []string {
	if e.prose {
		return indented(tail, p.width)
	}
	return []string{"  " + s.cut(tail, p.width-2)}
}

func (s *sheet) cut(text string, width int) string {
	if s.whole {
		return text
	}
	return fit(text, width)
}

func indented(text string, width int) []string {
	lines := wrap(text, width-2)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
