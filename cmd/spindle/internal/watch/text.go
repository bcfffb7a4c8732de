package watch

import (
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// cell cuts a text to a width, or fills it up.
func cell(text string, width int) string { return fill(ansi.Truncate(text, width, "…"), width) }

func fill(text string, width int) string {
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

// middle cuts a text in its middle: names often differ at their ends.
func middle(text string, width int) string {
	w := ansi.StringWidth(text)
	if w <= width {
		return text
	}
	if width < 2 {
		return ansi.Truncate(text, width, "")
	}
	head := width / 2
	tail := width - 1 - head
	end := ansi.TruncateLeft(text, w-tail, "")
	if ansi.StringWidth(end) > tail { // half of a wide character would be left
		end = ansi.TruncateLeft(text, w-tail+1, "")
	}
	return ansi.Truncate(text, head, "") + "…" + end
}

// wrap breaks a text into lines of the width. It keeps the lines that fit, and breaks names only where it must.
func wrap(text string, width int) (lines []string) {
	width = max(width, 1)
	for _, line := range strings.Split(text, "\n") {
		lines = append(lines, wrapLine(line, width)...)
	}
	return lines
}

func wrapLine(line string, width int) (lines []string) {
	words := strings.TrimLeft(line, " ")
	indent := strings.Repeat(" ", min(len(line)-len(words), width/2))
	for ansi.StringWidth(line) > width {
		head := ansi.Truncate(line, width, "")
		if space := strings.LastIndexByte(head, ' '); line[len(head)] != ' ' && space > len(indent) {
			head = head[:space]
		}
		rest := strings.TrimLeft(line[len(head):], " ")
		if head == "" { // one character is wider than the screen
			return append(lines, rest)
		}
		lines, line = append(lines, head), indent+rest
	}
	return append(lines, line)
}

// seconds is how old something is. Fractions would only flicker.
func seconds(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	if d >= time.Hour {
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return d.String()
}

// bar fills a share of the width, by eighths of a character.
func bar(share float64, width int) string {
	eighths := int(min(max(share, 0), 1)*float64(width)*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return text + strings.Repeat("·", width-ansi.StringWidth(text))
}
