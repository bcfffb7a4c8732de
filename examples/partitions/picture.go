//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/demokit"
)

// glance is how often a process that shows what it has looks.
const glance = 50 * time.Millisecond

// A picture is who has each partition at one instant, or one of these.
type picture [partitions]string

const (
	nobody = "."
	silent = "x" // a process that is dead or paused
)

// you is the process that somebody starts in another terminal.
const you = "Y"

// cast are the processes that have a bar.
var cast = []string{"A", "B", "C", "D", you}

// styles paint in a colour on a background of the same for a bar, or of another for a letter.
var styles = map[string]struct{ letter, bar demokit.Style }{
	"A":    {"\x1b[30;42m", "\x1b[32;42m"},
	"B":    {"\x1b[30;43m", "\x1b[33;43m"},
	"C":    {"\x1b[30;46m", "\x1b[36;46m"},
	"D":    {"\x1b[30;45m", "\x1b[35;45m"},
	you:    {"\x1b[30;44m", "\x1b[34;44m"},
	nobody: {demokit.Faint, ""},
	silent: {"\x1b[97;41m", ""},
}

// barWidth is that of a bar of half of the partitions, which is the most that the story gives to one process.
const barWidth = partitions/2 + 1

// legend is above the pictures, and names the bars.
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
