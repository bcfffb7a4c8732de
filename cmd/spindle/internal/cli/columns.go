package cli

import (
	"strings"
)

const (
	tokenWidth = 16
	leastName  = 8 // columns for a name: with fewer, each row is a card
)

// A row is one thing in a table, for people.
type row struct {
	cells []string // what it is, its state, and other columns
	more  []string // further columns of a wide table
	style style    // of the state
	tail  string   // what comes last, and may be long
	last  string   // the same of a wide table
	prose bool     // the tail is not cut, but goes on in the next line
	below string   // what is below it
}

// columns lays rows out, each cell under the name of its column. The last column has the tails.
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

// lines lays out thr rows: on one line each if the width allows that for all of them, on two otherwise, and as cards of several
// lines if even the columns don't fit. Rows of a later call are laid out as the first ones.
func (c *columns) lines(p *terminal, all []row) []string {
	cells := make([][]string, len(all))
	for i, r := range all {
		if cells[i] = r.cells; c.wide {
			cells[i] = append(cells[i][:len(cells[i]):len(cells[i])], r.more...)
		}
	}
	c.measure(p, cells, all)
	var lines []string
	if !c.begun && !c.bare && !c.cards {
		lines = append(lines, c.heading(p))
	}
	c.begun = true
	for i, r := range all {
		if c.cards {
			lines = append(lines, c.card(p, cells[i], r)...)
		} else {
			lines = append(lines, c.line(p, cells[i], r)...)
		}
		if r.below != "" && !c.wide {
			for _, line := range wrap(r.below, p.readableWidth()-2) {
				lines = append(lines, "  "+line)
			}
		}
	}
	return lines
}

func (c *columns) headings() []string { return c.names[:len(c.names)-1] }

func (c *columns) tail(r row) string {
	if c.wide {
		return r.last
	}
	return r.tail
}

// measure finds the widths of the columns, and whether all is on one line.
func (c *columns) measure(p *terminal, cells [][]string, all []row) {
	if !c.begun {
		c.widths = make([]int, len(c.headings()))
		if !c.bare {
			cells = append([][]string{c.headings()}, cells...)
		}
	}
	for _, row := range cells {
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
	for _, r := range all {
		tail = max(tail, length(c.tail(r)))
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

// line is a row under the columns, with its tail behind or below them.
func (c *columns) line(p *terminal, cells []string, r row) []string {
	var b strings.Builder
	for i, cell := range cells {
		text := fit(cell, c.widths[i])
		if i < len(cells)-1 {
			text = pad(text, c.widths[i]+2)
		}
		switch i {
		case 0:
			text = p.paint(bold, text)
		case 1:
			text = p.paint(r.style, text)
		}
		b.WriteString(text)
	}
	tail := c.tail(r)
	if tail == "" {
		return []string{b.String()}
	}
	if !c.oneLine {
		return append([]string{b.String()}, c.beneath(tail, r, p)...)
	}
	last := len(cells) - 1
	return []string{b.String() + pad("", c.widths[last]+2-length(fit(cells[last], c.widths[last]))) + tail}
}

// card is a row on a terminal that is too narrow for the columns.
func (c *columns) card(p *terminal, cells []string, r row) []string {
	lines := []string{p.paint(bold, c.cut(cells[0], p.width)), "  " + p.paint(r.style, cells[1])}
	facts := ""
	for i, title := range c.headings() {
		if i < 2 || cells[i] == "-" {
			continue
		}
		fact := strings.ToLower(title) + " " + cells[i]
		if facts != "" && length(facts)+2+length(fact) > p.width-2 {
			lines = append(lines, indented(facts, p.width)...)
			facts = ""
		}
		facts = joined(", ", facts, fact)
	}
	if facts != "" {
		lines = append(lines, indented(facts, p.width)...)
	}
	if tail := c.tail(r); tail != "" {
		lines = append(lines, c.beneath(tail, r, p)...)
	}
	return lines
}

// beneath is the tail of a row on lines of its own.
func (c *columns) beneath(tail string, r row, p *terminal) []string {
	if r.prose {
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
