//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/demokit"
)

// glance is how often a process updates its picture.
const glance = 50 * time.Millisecond

// A picture shows the owner of each partition at one instant. An entry is the name of a process, nobody or silent.
type picture [partitions]string

const (
	nobody = "."
	silent = "x" // a process that was killed or is paused
)

// you is the name of the process that the user starts in another terminal.
const you = "Y"

// cast lists the processes that have a bar.
var cast = []string{"A", "B", "C", "D", you}

// styles has the styles of each process's letter and bar. The text of a bar has the same colour as its background.
var styles = map[string]struct{ letter, bar demokit.Style }{
	"A":    {"\x1b[30;42m", "\x1b[32;42m"},
	"B":    {"\x1b[30;43m", "\x1b[33;43m"},
	"C":    {"\x1b[30;46m", "\x1b[36;46m"},
	"D":    {"\x1b[30;45m", "\x1b[35;45m"},
	you:    {"\x1b[30;44m", "\x1b[34;44m"},
	nobody: {demokit.Faint, ""},
	silent: {"\x1b[97;41m", ""},
}

// barWidth is the width of a bar, including the space after it. A bar has room for half of the partitions, which is
// enough if at least two processes share them.
const barWidth = partitions/2 + 1

// legend prints the heading above the pictures, which names the bars.
func legend(s *demokit.Timeline, bars []string, more string) {
	var line strings.Builder
	for _, who := range bars {
		fmt.Fprintf(&line, "%-*s", barWidth, who)
	}
	s.Print(demokit.Bold, "%*s0123456789abcdef  %s", demokit.Margin, "", strings.TrimRight(line.String()+more, " "))
}

// draw draws one picture: a column for each partition, and a bar for each process.
func draw(s *demokit.Timeline, p picture, bars []string, backlog ...int64) {
	var line strings.Builder
	for _, who := range p {
		letter := string([]rune(who)[:1])
		line.WriteString(s.Paint(styles[who].letter, letter))
	}
	line.WriteString("  ")
	for _, who := range bars {
		bar := strings.Repeat("#", p.count(who))
		if len(bar) >= barWidth {
			bar = bar[:barWidth-2] + "+"
		}
		line.WriteString(s.Paint(styles[who].bar, bar) + strings.Repeat(" ", barWidth-len(bar)))
	}
	for _, n := range backlog {
		fmt.Fprintf(&line, "%d", n)
	}
	s.Draw("", "%s", strings.TrimRight(line.String(), " "))
}

func (p picture) count(who string) (n int) {
	for _, w := range p {
		if w == who {
			n++
		}
	}
	return n
}
