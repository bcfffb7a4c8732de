package cli

import (
	"strings"
)

const (
	tokenWidth = 16
	leastName  = 8 // columns for a name: with fewer, each entry is a card
)

// columns lays entries out, each cell under the name of its column. The last column has the tails.
type columns struct {
	names []string
	bare  bool // without the line of headings
	whole bool // nothing is cut
	wide  bool // one line each, with the further columns, however long it is

	begun   bool // what comes next belongs under the same columns
	widths  []int
	oneLine bool
	cards   bool
}

// lines lays out the entries: on one line each if the width allows that for all of them, on two otherwise, and as cards of several
// lines if even the columns don't fit. Entries of a later call are laid out as the first ones.
func (c *columns) lines(p *terminal, all []entry) []string {
	rows := make([][]string, len(all))
	for i, e := range all {
		if rows[i] = e.cells; c.wide {
			rows[i] = append(rows[i][:len(rows[i]):len(rows[i])], e.more...)
		}
	}
	c.measure(p, rows, all)
	var lines []string
	if !c.begun && !c.bare && !c.cards {
		lines = append(lines, c.heading(p))
	}
	c.begun = true
	for i, e := range all {
		if c.cards {
			lines = append(lines, c.card(p, rows[i], e)...)
		} else {
			lines = append(lines, c.line(p, rows[i], e)...)
		}
		if e.below != "" && !c.wide {
			for _, line := range wrap(e.below, width(p)-2) {
				lines = append(lines, "  "+line)
			}
		}
	}
	return lines
}

func (c *columns) headings() []string { return c.names[:len(c.names)-1] }

func (c *columns) tail(e entry) string {
	if c.wide {
		return e.last
	}
	return e.tail
}

// measure finds the widths of the columns, and whether all is on one line.
func (c *columns) measure(p *terminal, rows [][]string, all []entry) {
	if !c.begun {
		c.widths = make([]int, len(c.headings()))
		if !c.bare {
			rows = append([][]string{c.headings()}, rows...)
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 || !c.begun || c.oneLine || c.whole {
				c.widths[i] = max(c.widths[i], length(cell))
			}
		}
	}
	if c.begun {
		return
	}
	rest, tail := 0, len(c.names[len(c.names)-1])
	for _, w := range c.widths[1:] {
		rest += 2 + w
	}
	for _, e := range all {
		tail = max(tail, length(c.tail(e)))
	}
	c.oneLine = p.width == 0 || c.wide || c.widths[0]+rest+2+tail <= p.width
	c.cards = !c.oneLine && min(c.widths[0], leastName)+rest > p.width
	if !c.oneLine && !c.whole {
		c.widths[0] = min(c.widths[0], max(p.width-rest, leastName))
	}
}

func (c *columns) heading(p *terminal) string {
	var b strings.Builder
	for i, title := range c.headings() {
		text := fit(title, c.widths[i])
		if i < len(c.widths)-1 {
			text = pad(text, c.widths[i]+2)
		}
		b.WriteString(p.paint(faint, text))
	}
	if c.oneLine {
		last := len(c.widths) - 1
		b.WriteString(pad("", c.widths[last]+2-length(fit(c.headings()[last], c.widths[last]))) + p.paint(faint, c.names[len(c.names)-1]))
	}
	return b.String()
}

// line is an entry under the columns, with its tail behind or below them.
func (c *columns) line(p *terminal, row []string, e entry) []string {
	var b strings.Builder
	for i, cell := range row {
		text := fit(cell, c.widths[i])
		if i < len(row)-1 {
			text = pad(text, c.widths[i]+2)
		}
		switch i {
		case 0:
			text = p.paint(bold, text)
		case 1:
			text = p.paint(styles[e.state], text)
		}
		b.WriteString(text)
	}
	tail := c.tail(e)
	if tail == "" {
		return []string{b.String()}
	}
	if !c.oneLine {
		return append([]string{b.String()}, c.beneath(tail, e, p)...)
	}
	last := len(row) - 1
	return []string{b.String() + pad("", c.widths[last]+2-length(fit(row[last], c.widths[last]))) + tail}
}

// card is an entry on a terminal that is too narrow for the columns.
func (c *columns) card(p *terminal, row []string, e entry) []string {
	lines := []string{p.paint(bold, c.cut(row[0], p.width)), "  " + p.paint(styles[e.state], row[1])}
	facts := ""
	for i, title := range c.headings() {
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
	if tail := c.tail(e); tail != "" {
		lines = append(lines, c.beneath(tail, e, p)...)
	}
	return lines
}

// beneath is the tail of an entry on lines of its own.
func (c *columns) beneath(tail string, e entry, p *terminal) []string {
	if e.prose {
		return indented(tail, p.width)
	}
	return []string{"  " + c.cut(tail, p.width-2)}
}

func (c *columns) cut(text string, width int) string {
	if c.whole {
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
