package terminal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// someRows returns rows of random texts, some of which are empty or missing.
func someRows(random *rand.Rand, columns, more int) []Row {
	text := func(least, most int) string {
		return strings.Repeat("abcdefghijklmnopqrstuvwxyz ", 3)[:least+random.IntN(most-least+1)]
	}
	all := make([]Row, random.IntN(5))
	longest := []int{6, 14, 40}[random.IntN(3)]
	for i := range all {
		r := &all[i]
		r.Cells = []string{text(1, longest), text(1, 8)}
		for len(r.Cells) < columns {
			r.Cells = append(r.Cells, []string{"-", text(1, 9)}[random.IntN(2)])
		}
		for range more {
			r.More = append(r.More, text(1, 9))
		}
		r.Tail, r.Last, r.Prose, r.Style = text(0, longest), text(0, 9), random.IntN(2) == 0, Green
		if random.IntN(3) == 0 {
			r.Below = text(1, 60)
		}
	}
	return all
}

// laidOut is a table as its description says: each cell begins where its heading does, and the tails are in the last
// column if all of them fit there.
func laidOut(width int, wide bool, names []string, all []Row) (lines []string) {
	heads, last := names[:len(names)-1], names[len(names)-1]
	cellsOf := func(r Row) ([]string, string) {
		if wide {
			return slices.Concat(r.Cells, r.More), r.Last
		}
		return r.Cells, r.Tail
	}
	widths := make([]int, len(heads))
	for i, head := range heads {
		widths[i] = len(head)
		for _, r := range all {
			cells, _ := cellsOf(r)
			widths[i] = max(widths[i], len(cells[i]))
		}
	}
	row := func(cells []string, tail string) string {
		line, at := "", 0
		for i, cell := range slices.Concat(cells, []string{tail}) {
			if cell != "" {
				line = fmt.Sprintf("%-*s%s", at, line, cell)
			}
			if i < len(widths) {
				at += widths[i] + 2
			}
		}
		return line
	}
	indent := func(text string, width int) {
		for _, line := range Wrap(text, width-2) {
			lines = append(lines, "  "+line)
		}
	}
	fits := true
	for _, r := range append([]Row{{Cells: heads, Tail: last, Last: last}}, all...) {
		cells, tail := cellsOf(r)
		padded := slices.Clone(cells)
		for i := range heads[:len(padded)] {
			padded[i] = fmt.Sprintf("%-*s", widths[i], padded[i])
		}
		fits = fits && (tail == "" || len(row(padded, tail)) <= width)
	}
	if width == 0 || wide {
		fits = true
	}
	others := 0
	for _, w := range widths[1:] {
		others += 2 + w
	}
	cards := !fits && min(widths[0], 8)+others > width
	if !fits {
		widths[0] = min(widths[0], max(8, width-others))
	}
	under := func(r Row) {
		if _, tail := cellsOf(r); !fits && tail != "" && r.Prose {
			indent(tail, width)
		} else if !fits && tail != "" {
			lines = append(lines, "  "+Fit(tail, width-2))
		}
		if r.Below != "" && !wide {
			indent(r.Below, map[bool]int{true: 110, false: min(width, 110)}[width == 0])
		}
	}
	if !cards {
		head := row(heads, map[bool]string{true: last}[fits])
		lines = append(lines, head)
	}
	for _, r := range all {
		cells, tail := cellsOf(r)
		if !fits {
			tail = ""
		}
		cells = slices.Clone(cells)
		if !cards {
			cells[0] = Fit(cells[0], widths[0])
			lines = append(lines, row(cells, tail))
			under(r)
			continue
		}
		lines = append(lines, Fit(cells[0], width), "  "+cells[1])
		facts := ""
		for i := 2; i < len(cells); i++ {
			fact := strings.ToLower(heads[i]) + " " + cells[i]
			switch {
			case cells[i] == "-":
			case facts == "":
				facts = fact
			case len(facts)+len(", ")+len(fact) <= width-2:
				facts += ", " + fact
			default:
				indent(facts, width)
				facts = fact
			}
		}
		if facts != "" {
			indent(facts, width)
		}
		under(r)
	}
	return lines
}

// A table is laid out in the one of its forms that fits the terminal: the same as a plain layout says, for random rows on
// terminals of all widths. No line is longer than the terminal is wide, and colours change nothing else.
func TestATableIsLaidOutAsWideAsTheTerminalIs(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 150 {
		names := []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT"}[:2+random.IntN(4)]
		wide, more := random.IntN(4) == 0, random.IntN(3)
		all := someRows(random, len(names), more)
		names = slices.Clone(names)
		if wide {
			names = append(names, []string{"ONE", "TWO"}[:more]...)
		}
		names = append(names, []string{"HOLDER AND VALUE", "V"}[random.IntN(2)])
		for _, width := range append([]int{0}, random.Perm(130)[:40]...) {
			if width > 0 && width < 20 {
				continue
			}
			c := &Columns{Names: names, Wide: wide, widths: slices.Repeat([]int{99}, 9)} // from an earlier drawing
			for i, r := range all {
				all[i].Cells = append(r.Cells, "of another row")[:len(r.Cells)]
			}
			lines := c.Lines(&Terminal{Width: width}, all)
			for _, r := range all {
				require.Equal(t, "of another row", r.Cells[:len(r.Cells)+1][len(r.Cells)], "it writes to what it is given")
			}
			trimmed := slices.Clone(lines)
			for i := range trimmed {
				trimmed[i] = strings.TrimRight(trimmed[i], " ")
			}
			want := laidOut(width, wide, names, all)
			for i := range want {
				want[i] = strings.TrimRight(want[i], " ")
			}
			require.Equal(t, want, trimmed, "%d columns", width)
			for _, line := range lines {
				require.True(t, width == 0 || wide || Length(line) <= width, "%q in %d columns", line, width)
			}
			painted := (&Columns{Names: names, Wide: wide}).Lines(&Terminal{Width: width, colour: true}, all)
			for i := range painted {
				painted[i] = ansi.Strip(painted[i])
			}
			require.Equal(t, lines, painted)
		}
	}
}

// On a terminal with colours, the eye finds the names and the states: they have the styles that they should have, in a row
// as on a card, and nothing else has one.
func TestNamesAndStatesHaveTheirStyles(t *testing.T) {
	rows := []Row{{Cells: []string{"nightly", "held", "7", "1s"}, Style: Green, Tail: "me", Below: "last done: 7"}, {Cells: []string{"x", "expired", "8", "-"}, Style: Red, Tail: "you"}}
	names := []string{"LOCK", "STATE", "TOKEN", "SINCE", "HOLDER"}
	p := &Terminal{colour: true}
	assert.Equal(t, []string{
		Faint.Styled("LOCK     ") + Faint.Styled("STATE    ") + Faint.Styled("TOKEN  ") + Faint.Styled("SINCE  ") + Faint.Styled("HOLDER"),
		Bold.Styled("nightly  ") + Green.Styled("held     ") + "7      1s     me",
		"  last done: 7",
		Bold.Styled("x        ") + Red.Styled("expired  ") + "8      -      you",
	}, (&Columns{Names: names}).Lines(p, rows))
	p.Width = 20
	assert.Equal(t, []string{Bold.Styled("nightly"), "  " + Green.Styled("held"), "  token 7, since 1s", "  me", "  last done: 7", Bold.Styled("x"), "  " + Red.Styled("expired"), "  token 8", "  you"},
		(&Columns{Names: names}).Lines(p, rows))
	p.colour = false
	for _, line := range (&Columns{Names: names}).Lines(p, rows) {
		assert.NotContains(t, line, "\x1b")
	}
}
