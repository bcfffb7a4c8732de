// Package terminal formats and writes the output of commands, for people and for programs. It contains nothing that is
// specific to locks.
//
//   - terminal.go: the destination of output, with its width and colours
//   - text.go, duration.go: measuring, cutting, wrapping and formatting text
//   - escape.go: escaping characters that could harm a terminal
//   - columns.go: tables
//   - format.go, json.go: the formats of --output
//   - journal.go, outlet.go: messages on standard error
package terminal

import (
	"io"
	"os"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A Style is how text looks on a terminal that has colours. All styles use the terminal's own sixteen colours. A
// style only emphasizes what the text already says, because the output may have no colours.
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

// A Terminal is the destination of output: a terminal, with its colours and size, or a file.
type Terminal struct {
	io.Writer
	IsTerminal bool
	colour     bool
	Width      int // 0 if unlimited
	Height     int
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
	if t.Width, t.Height, err = term.GetSize(int(f.Fd())); err != nil || t.Width < 20 || t.Height < 5 {
		t.Width, t.Height = 80, 24
	}
}

// Paint returns the text in a style, or as it is if the terminal has no colours.
func (t *Terminal) Paint(s Style, text string) string {
	if !t.colour || text == "" {
		return text
	}
	return s.Styled(text)
}

// ReadableWidth returns the width for running text.
func (t *Terminal) ReadableWidth() int {
	if t.Width == 0 {
		return Readable
	}
	return min(t.Width, Readable)
}

// Readable is the greatest width of running text.
const Readable = 110

// Redraws reports whether the output can be replaced, with Clear.
func (t *Terminal) Redraws() bool { return t.IsTerminal && os.Getenv("TERM") != "dumb" }

// Clear makes a terminal empty.
const Clear = "\x1b[H\x1b[J"
