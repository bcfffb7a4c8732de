// Package terminal connects all commands to the person or program that runs them: flags and variables, output,
// messages, exit codes and signals. It does not read a lock table.
//
//   - terminal.go: the destination of output, with its width and colours
//   - flags.go: flags and arguments, and the variables that set flags
//   - text.go: measuring, cutting, wrapping and formatting text and durations
//   - escape.go: escaping characters that could harm a terminal, in text and in JSON
//   - columns.go: tables
//   - format.go: the formats of --output
//   - journal.go: messages on standard error
//   - exit.go: exit codes, and the signals that end a command
package terminal

import (
	"bufio"
	"cmp"
	"fmt"
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
	if t.IsTerminal {
		var err error
		if t.Width, t.Height, err = term.GetSize(int(f.Fd())); err != nil || t.Width < 20 || t.Height < 5 {
			t.Width, t.Height = 80, 24
		}
	}
	return t
}

// Buffered calls the function print with a copy of t that collects the output. It then writes the output, even if print
// has failed, and returns the first error.
func (t *Terminal) Buffered(print func(*Terminal) error) error {
	out := bufio.NewWriter(t.Writer)
	p := *t
	p.Writer = out
	return cmp.Or(print(&p), out.Flush())
}

// Paint returns the text in a style, or unchanged if the terminal has no colours.
func (t *Terminal) Paint(s Style, text string) string {
	if !t.colour || text == "" {
		return text
	}
	return s.Styled(text)
}

// Say prints running text in a style. It wraps the text to the terminal's width, or to Readable if that is less.
func (t *Terminal) Say(s Style, text string) {
	for _, line := range Wrap(text, t.readableWidth()) {
		fmt.Fprintln(t, t.Paint(s, line))
	}
}

func (t *Terminal) readableWidth() int {
	if t.Width == 0 {
		return Readable
	}
	return min(t.Width, Readable)
}

// Readable is the greatest width of running text.
const Readable = 110

// Redraws reports whether Clear can clear the output, so that it can be drawn again.
func (t *Terminal) Redraws() bool { return t.IsTerminal && os.Getenv("TERM") != "dumb" }

// Clear is the text that clears a terminal.
const Clear = "\x1b[H\x1b[J"
