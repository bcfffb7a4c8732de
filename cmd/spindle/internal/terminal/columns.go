package terminal

import (
	"strings"
)

const (
	tokenWidth = 16
	leastName  = 8 // the least width for a name; with less, each row is a card
)

// A Row is one row of a table, for people.
type Row struct {
	Cells []string // the name, the state, and other columns
	More  []string // further columns of a wide table
	Style Style    // of the state
	Tail  string   // the last column, which may be long
	Last  string   // the last column of a wide table
	Prose bool     // the tail is wrapped instead of cut
	Below string   // the text below the row
}

// Columns lays out rows, each cell under the heading of its column. The last column has the tails.
type Columns struct {
	Names []string
	Wide  bool // each row is one line with the further columns, however long

	widths  []int
	oneLine bool
	cards   bool
}

// Lines lays out the rows. If the terminal is wide enough, each row takes one line. Otherwise, each row takes two lines
// or, on a very narrow terminal, a card of several lines.
func (c *Columns) Lines(p *Terminal, all []Row) []string {
	cells := make([][]string, len(all))
	for i, r := range all {
		if cells[i] = r.Cells; c.Wide {
			cells[i] = append(cells[i][:len(cells[i]):len(cells[i])], r.More...)
		}
	}
	c.measure(p, cells, all)
	var lines []string
	if !c.cards {
		lines = append(lines, c.heading(p))
	}
	for i, r := range all {
		if c.cards {
			lines = append(lines, c.card(p, cells[i], r)...)
		} else {
			lines = append(lines, c.line(p, cells[i], r)...)
		}
		if r.Below != "" && !c.Wide {
			for _, line := range Wrap(r.Below, p.ReadableWidth()-2) {
				lines = append(lines, "  "+line)
			}
		}
	}
	return lines
}

func (c *Columns) headings() []string { return c.Names[:len(c.Names)-1] }

func (c *Columns) tail(r Row) string {
	if c.Wide {
		return r.Last
	}
	return r.Tail
}

// measure determines the widths of the columns, and whether each row is one line, two lines or a card.
func (c *Columns) measure(p *Terminal, cells [][]string, all []Row) {
	c.widths = make([]int, len(c.headings()))
	cells = append([][]string{c.headings()}, cells...)
	for _, row := range cells {
		for i, cell := range row {
			c.widths[i] = max(c.widths[i], Length(cell))
		}
	}
	rest, tail := 0, len(c.Names[len(c.Names)-1])
	for _, w := range c.widths[1:] {
		rest += 2 + w
	}
	for _, r := range all {
		tail = max(tail, Length(c.tail(r)))
	}
	c.oneLine = p.Width == 0 || c.Wide || c.widths[0]+rest+2+tail <= p.Width
	c.cards = !c.oneLine && min(c.widths[0], leastName)+rest > p.Width
	if !c.oneLine {
		c.widths[0] = min(c.widths[0], max(p.Width-rest, leastName))
	}
}

func (c *Columns) heading(p *Terminal) string {
	var b strings.Builder
	for i, title := range c.headings() {
		text := Fit(title, c.widths[i])
		if i < len(c.widths)-1 {
			text = Pad(text, c.widths[i]+2)
		}
		b.WriteString(p.Paint(Faint, text))
	}
	if c.oneLine {
		last := len(c.widths) - 1
		b.WriteString(Pad("", c.widths[last]+2-Length(Fit(c.headings()[last], c.widths[last]))) + p.Paint(Faint, c.Names[len(c.Names)-1]))
	}
	return b.String()
}

// line returns a row in columns, with its tail on the same line or below it.
func (c *Columns) line(p *Terminal, cells []string, r Row) []string {
	var b strings.Builder
	for i, cell := range cells {
		text := Fit(cell, c.widths[i])
		if i < len(cells)-1 {
			text = Pad(text, c.widths[i]+2)
		}
		switch i {
		case 0:
			text = p.Paint(Bold, text)
		case 1:
			text = p.Paint(r.Style, text)
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
	return []string{b.String() + Pad("", c.widths[last]+2-Length(Fit(cells[last], c.widths[last]))) + tail}
}

// card returns a row for a terminal that is too narrow for the columns.
func (c *Columns) card(p *Terminal, cells []string, r Row) []string {
	lines := []string{p.Paint(Bold, Fit(cells[0], p.Width)), "  " + p.Paint(r.Style, cells[1])}
	facts := ""
	for i, title := range c.headings() {
		if i < 2 || cells[i] == "-" {
			continue
		}
		fact := strings.ToLower(title) + " " + cells[i]
		if facts != "" && Length(facts)+2+Length(fact) > p.Width-2 {
			lines = append(lines, Indented(facts, p.Width)...)
			facts = ""
		}
		facts = Join(", ", facts, fact)
	}
	if facts != "" {
		lines = append(lines, Indented(facts, p.Width)...)
	}
	if tail := c.tail(r); tail != "" {
		lines = append(lines, c.beneath(tail, r, p)...)
	}
	return lines
}

// beneath returns the tail of a row on lines of its own.
func (c *Columns) beneath(tail string, r Row, p *Terminal) []string {
	if r.Prose {
		return Indented(tail, p.Width)
	}
	return []string{"  " + Fit(tail, p.Width-2)}
}

// Indented wraps a text and indents its lines.
func Indented(text string, width int) []string {
	lines := Wrap(text, width-2)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
