package terminal

import (
	"fmt"
	"slices"
	"strings"
)

const leastName = 8 // the minimum width of the first column; if there is less room, each row is a card

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

// Columns lays out rows, each cell under the heading of its column. The last column contains the tails of the rows.
type Columns struct {
	Names []string
	Wide  bool // each row is one line with the further columns, however long

	widths  []int
	oneLine bool
	cards   bool
}

// Lines lays out the rows. If the terminal is wide enough or c.Wide is set, each row takes one line. Otherwise, each
// row's tail is below the row. On a very narrow terminal, the row itself is a card of several lines.
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
		faint := slices.Repeat([]Style{Faint}, len(c.widths))
		lines = append(lines, c.line(p, c.headings(), faint, p.Paint(Faint, c.Names[len(c.Names)-1])))
	}
	for i, r := range all {
		if c.cards {
			lines = append(lines, c.card(p, cells[i], r)...)
		} else {
			lines = append(lines, c.line(p, cells[i], []Style{Bold, r.Style}, c.tail(r)))
		}
		if !c.oneLine {
			lines = append(lines, c.beneath(p, r)...)
		}
		if r.Below != "" && !c.Wide {
			lines = append(lines, indented(r.Below, p.readableWidth())...)
		}
	}
	return lines
}

// Print prints the rows.
func (c *Columns) Print(p *Terminal, all []Row) {
	for _, line := range c.Lines(p, all) {
		fmt.Fprintln(p, line)
	}
}

func (c *Columns) headings() []string { return c.Names[:len(c.Names)-1] }

func (c *Columns) tail(r Row) string {
	if c.Wide {
		return r.Last
	}
	return r.Tail
}

// measure determines the widths of the columns, and the form of the rows: one line, a line with the tail below, or a
// card.
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

// line returns cells in columns, each in its style, and the tail if it is on the same line.
func (c *Columns) line(p *Terminal, cells []string, styles []Style, tail string) string {
	if !c.oneLine {
		tail = ""
	}
	var b strings.Builder
	for i, cell := range cells {
		text := Fit(cell, c.widths[i])
		if i < len(cells)-1 || tail != "" {
			text = Pad(text, c.widths[i]+2)
		}
		if i < len(styles) {
			text = p.Paint(styles[i], text)
		}
		b.WriteString(text)
	}
	return b.String() + tail
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
			lines = append(lines, indented(facts, p.Width)...)
			facts = ""
		}
		facts = Join(", ", facts, fact)
	}
	if facts != "" {
		lines = append(lines, indented(facts, p.Width)...)
	}
	return lines
}

// beneath returns the tail of a row on lines of its own.
func (c *Columns) beneath(p *Terminal, r Row) []string {
	switch tail := c.tail(r); {
	case tail == "":
		return nil
	case r.Prose:
		return indented(tail, p.Width)
	default:
		return []string{"  " + Fit(tail, p.Width-2)}
	}
}

// indented wraps a string and indents its lines.
func indented(text string, width int) []string {
	lines := Wrap(text, width-2)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
