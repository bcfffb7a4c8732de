package demokit

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// width is the maximum length of a line.
const width = 80

// Margin is the column in which a line's text begins.
const Margin = 13

// A Style is how a line's text looks on a terminal that has colours.
type Style string

// The styles.
const (
	Plain Style = ""
	Good  Style = "\x1b[32m"
	Bad   Style = "\x1b[31m"
	Bold  Style = "\x1b[1m"
	Faint Style = "\x1b[2m"

	reset = "\x1b[0m"
)

// A Timeline prints events to standard output, each with the number of seconds since the timeline began. It uses
// colours if standard output is a terminal that supports them and NO_COLOR is not set. Only the goroutine that plays
// the story may use it.
type Timeline struct {
	began    time.Time
	terminal bool
	colour   bool
	column   int // the length of the line that Mark is writing, or 0
}

// NewTimeline returns a timeline that begins now.
func NewTimeline() *Timeline {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	colour := terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Timeline{began: time.Now(), terminal: terminal, colour: colour}
}

// Print prints a line that is not part of the timeline.
func (t *Timeline) Print(s Style, format string, args ...any) {
	t.endLine()
	fmt.Println(t.Paint(s, fmt.Sprintf(format, args...)))
}

// Say prints an event that happens now, and the process that it concerns.
func (t *Timeline) Say(who string, s Style, format string, args ...any) {
	t.head(who)
	for i, line := range Wrap(fmt.Sprintf(format, args...), width-Margin) {
		if i > 0 {
			fmt.Printf("%*s", Margin, "")
		}
		fmt.Println(t.Paint(s, line))
	}
}

// Draw prints a line without wrapping or painting it, so that its parts can have different styles.
func (t *Timeline) Draw(who, format string, args ...any) {
	t.head(who)
	fmt.Printf(format+"\n", args...)
}

// Mark prints a mark, such as a star. The first mark begins a new line with the given text, and later marks are added
// to that line. When the line is full or something else has been printed, the next mark begins a new line.
func (t *Timeline) Mark(who, text, mark string) {
	if t.column == 0 || t.column+1+len(mark) > width {
		t.head(who)
		fmt.Print(t.Paint(Faint, text))
		t.column = Margin + len(text)
	}
	fmt.Print(" " + t.Paint(Good, mark))
	t.column += 1 + len(mark)
}

func (t *Timeline) head(who string) {
	t.endLine()
	if t.terminal {
		fmt.Print("\r") // overwrites the ^C that the terminal shows for Ctrl+C
	}
	seconds := fmt.Sprintf("%7.2fs", time.Since(t.began).Seconds())
	fmt.Printf("%s  %s ", t.Paint(Faint, seconds), t.Paint(Bold, fmt.Sprintf("%-2s", who)))
}

func (t *Timeline) endLine() {
	if t.column > 0 {
		fmt.Println()
	}
	t.column = 0
}

// Paint returns the text in that style, if the terminal has colours.
func (t *Timeline) Paint(s Style, text string) string {
	if !t.colour || s == Plain {
		return text
	}
	return string(s) + text + reset
}

// Wrap breaks text into lines between words. It keeps runs of spaces, which align words.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
