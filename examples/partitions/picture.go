//go:build unix

package main

import (
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/demokit"
)

// A picture shows the owner of each partition at one instant. An entry is the name of a process, nobody or silent.
type picture [partitions]string

const (
	nobody = "."
	silent = "x" // a process that was killed or is paused
)

var styles = map[string]demokit.Style{
	"A": "\x1b[30;42m", "B": "\x1b[30;43m", "C": "\x1b[30;46m", "D": "\x1b[30;45m", nobody: demokit.Faint, silent: "\x1b[97;41m",
}

// draw draws a picture: a column for each partition, and the number of items that are not processed yet.
func draw(t *demokit.Timeline, p picture, backlog int64) {
	var line strings.Builder
	for _, who := range p {
		line.WriteString(t.Paint(styles[who], who))
	}
	t.Draw("", "%s  %d", line.String(), backlog)
}

// vacancies measures for how long partitions have no running owner.
type vacancies struct {
	since   [partitions]time.Time // when each lost its running owner, or zero
	longest time.Duration         // in this act
}

func (v *vacancies) see(p picture) {
	for n, who := range p {
		switch empty := who == nobody || who == silent; {
		case empty && v.since[n].IsZero():
			v.since[n] = time.Now()
		case !empty && !v.since[n].IsZero():
			v.longest = max(v.longest, time.Since(v.since[n]))
			v.since[n] = time.Time{}
		}
	}
}
