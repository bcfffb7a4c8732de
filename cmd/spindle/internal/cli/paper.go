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

// paper is where the output goes: a terminal, with its colours and size, or a file.
type paper struct {
	io.Writer
	terminal bool
	colour   bool
	width    int // 0: endless
	height   int
}

func paperOn(f *os.File) *paper {
	p := &paper{Writer: f, terminal: term.IsTerminal(int(f.Fd()))}
	p.colour = p.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	p.measure(f)
	return p
}

func (p *paper) measure(f *os.File) {
	if !p.terminal {
		return
	}
	var err error
	if p.width, p.height, err = term.GetSize(int(f.Fd())); err != nil || p.width < 20 || p.height < 5 {
		p.width, p.height = 80, 24
	}
}

func (p *paper) paint(s style, text string) string {
	if !p.colour || s == plain || text == "" {
		return text
	}
	return string(s) + text + "\x1b[0m"
}
