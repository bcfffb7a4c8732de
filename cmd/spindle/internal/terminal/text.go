package terminal

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Length returns how many columns a text occupies on a terminal. A Chinese, Japanese or Korean character or an emoji
// occupies two columns, and a combining accent none.
func Length(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return ansi.StringWidth(s)
		}
	}
	return len(s)
}

// Pad pads a text with spaces to a width.
func Pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-Length(s), 0))
}

// Fit cuts a text in its middle to fit a width, because the names of locks often differ only at their ends.
func Fit(s string, width int) string {
	switch {
	case Length(s) <= width:
		return s
	case width < 1:
		return ""
	}
	end := width / 2
	return ansi.Truncate(s, width-1-end, "") + "…" + End(s, end)
}

// Cut cuts a text at its end to fit a width.
func Cut(s string, width int) string { return ansi.Truncate(s, width, "…") }

// End returns the longest part of a text's end that fits a width.
func End(s string, width int) string {
	over := max(Length(s)-width, 0)
	end := ansi.TruncateLeft(s, over, "")
	if Length(end) > width { // half of a wide character would be left out
		end = ansi.TruncateLeft(s, over+1, "")
	}
	return end
}

// Wrap breaks a text into lines between words. It breaks a word only if the word is longer than a line. It keeps
// multiple spaces, which may align columns.
func Wrap(text string, width int) []string {
	width = max(width, 2) // the widest character
	var lines []string
	line, used := "", 0
	for i, word := range strings.Split(text, " ") {
		n := Length(word)
		switch {
		case i == 0:
			line, used = word, n
		case used+1+n > width:
			lines = append(lines, line)
			line, used = word, n
		default:
			line, used = line+" "+word, used+1+n
		}
		for used > width {
			head := ansi.Truncate(line, width, "")
			lines = append(lines, head)
			line = line[len(head):]
			used = Length(line)
		}
	}
	return append(lines, line)
}

// WrapLines wraps each line of a text, and keeps the indentation of the line.
func WrapLines(text string, width int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		rest := strings.TrimLeft(line, " ")
		indent := line[:min(len(line)-len(rest), width/2)]
		for _, part := range Wrap(rest, width-len(indent)) {
			lines = append(lines, indent+part)
		}
	}
	return lines
}

// Fold wraps a text for a terminal. If the output is not a terminal, the text is returned unchanged.
func Fold(p *Terminal, text string) string {
	if p.Width == 0 {
		return text
	}
	return strings.Join(WrapLines(text, p.Width), "\n")
}

// OneOf lists the words to choose from, as in "a, b or c".
func OneOf(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Count formats a number of things, such as "1 lock" or "2 locks".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Join joins the texts that are not empty, with a separator between them.
func Join(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// URL returns the URL at which a browser on this machine reaches an address.
func URL(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
