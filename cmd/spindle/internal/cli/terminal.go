package cli

import (
	"io"
	"os"

	"golang.org/x/term"
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

// readableWidth is the width of text that people read.
func (t *terminal) readableWidth() int {
	if t.width == 0 {
		return readable
	}
	return min(t.width, readable)
}

// readable is how wide text is at most that people read.
const readable = 110

// atTerminal reports whether somebody can look at a screen, and press keys.
func (t *terminal) atTerminal() bool {
	return t.isTerminal && terminalOn(os.Stdin).isTerminal && os.Getenv("TERM") != "dumb"
}
