package cli

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/spindle-lock/spindle/internal/table"
)

// A style is how text looks on a terminal that has colours.
type style string

const (
	plain style = ""
	green style = "\x1b[32m"
	red   style = "\x1b[31m"
	amber style = "\x1b[33m"
	bold  style = "\x1b[1m"
	faint style = "\x1b[2m"
)

var styles = map[table.State]style{
	table.Held: green, table.Leaving: amber, table.Expired: red, table.Released: faint, table.Unconfirmed: amber,
	table.Orphaned: red, table.Unreadable: red, table.Free: faint,
}

// terminal is where the output goes: a terminal, with its colours and size, or a file.
type terminal struct {
	io.Writer
	isTerminal bool
	colour     bool
	width      int // 0: endless
	height     int
}

func terminalOn(f *os.File) *terminal {
	t := &terminal{Writer: f, isTerminal: term.IsTerminal(int(f.Fd()))}
	t.colour = t.isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	t.measure(f)
	return t
}

func (t *terminal) measure(f *os.File) {
	if !t.isTerminal {
		return
	}
	var err error
	if t.width, t.height, err = term.GetSize(int(f.Fd())); err != nil || t.width < 20 || t.height < 5 {
		t.width, t.height = 80, 24
	}
}

func (t *terminal) paint(s style, text string) string {
	if !t.colour || s == plain || text == "" {
		return text
	}
	return string(s) + text + "\x1b[0m"
}
