// Package terminal writes the command's output: for people on a terminal or in a file, and for programs. It knows nothing
// of locks.
//
//   - terminal.go: where output goes, and how wide and colourful that is
//   - text.go, duration.go: widths of texts, and how they are cut, wrapped and put in words
//   - escape.go: makes texts harmless on a terminal
//   - columns.go: a table of output
//   - format.go, json.go, yaml.go: --output
//   - journal.go, outlet.go: messages on the standard error
package terminal

import (
	"io"
	"os"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A Style is how text looks on a terminal that has colours: they are the terminal's own sixteen. What a style says is in the
// text too: there may be no colours.
type Style = ansi.Style

// The styles.
var (
	Green = ansi.Style{}.ForegroundColor(ansi.Green)
	Red   = ansi.Style{}.ForegroundColor(ansi.Red)
	Amber = ansi.Style{}.ForegroundColor(ansi.Yellow)
	Bold  = ansi.Style{}.Bold()
	Faint = ansi.Style{}.Faint()
	Alarm = ansi.Style{}.ForegroundColor(ansi.Red).Bold().Reverse(true)
)

// Terminal is where the output goes: a terminal, with its colours and size, or a file.
type Terminal struct {
	io.Writer
	IsTerminal bool
	colour     bool
	Width      int // 0: endless
	height     int
}

// On returns the Terminal for output to a file.
func On(f *os.File) *Terminal {
	t := &Terminal{Writer: f, IsTerminal: term.IsTerminal(int(f.Fd()))}
	t.colour = t.IsTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	t.measure(f)
	return t
}

func (t *Terminal) measure(f *os.File) {
	if !t.IsTerminal {
		return
	}
	var err error
	if t.Width, t.height, err = term.GetSize(int(f.Fd())); err != nil || t.Width < 20 || t.height < 5 {
		t.Width, t.height = 80, 24
	}
}

// Paint returns the text in that style, if the terminal has colours.
func (t *Terminal) Paint(s Style, text string) string {
	if !t.colour || text == "" {
		return text
	}
	return s.Styled(text)
}

// ReadableWidth returns the width of text that people read.
func (t *Terminal) ReadableWidth() int {
	if t.Width == 0 {
		return Readable
	}
	return min(t.Width, Readable)
}

// Readable is the greatest width of text that people read.
const Readable = 110

// AtTerminal reports whether somebody can look at a screen, and press keys.
func (t *Terminal) AtTerminal() bool {
	return t.IsTerminal && On(os.Stdin).IsTerminal && os.Getenv("TERM") != "dumb"
}
