package terminal

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Length returns the number of columns that a string occupies on a terminal. Chinese, Japanese and Korean characters
// and emoji occupy two columns. Combining accents occupy none.
func Length(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return ansi.StringWidth(s)
		}
	}
	return len(s)
}

// Pad pads a string with spaces to a width.
func Pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-Length(s), 0))
}

// Fit shortens a string to a width. It leaves out the middle, because the names of locks often differ only at the end.
func Fit(s string, width int) string {
	switch {
	case Length(s) <= width:
		return s
	case width < 1:
		return ""
	}
	n := width / 2
	over := Length(s) - n
	end := ansi.TruncateLeft(s, over, "")
	if Length(end) > n { // half of a wide character would be left out
		end = ansi.TruncateLeft(s, over+1, "")
	}
	return ansi.Truncate(s, width-1-n, "") + "…" + end
}

// Wrap breaks a string into lines between words. It breaks a word only if the word is longer than a line. It keeps
// consecutive spaces within a line, because they may align columns.
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

// WrapLines wraps each line of a string. It keeps the indentation of the line, up to half of the width.
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

// Fold wraps a string for a terminal. If the output is not a terminal, the string is returned unchanged.
func Fold(p *Terminal, text string) string {
	if p.Width == 0 {
		return text
	}
	return strings.Join(WrapLines(text, p.Width), "\n")
}

// OneOf lists the words to choose from, as in "a, b or c".
func OneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Count formats a number of things, such as "1 lock" or "2 locks".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Join joins the strings that are not empty, with a separator between them.
func Join(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// URL returns the URL at which a browser on this machine can reach an address.
func URL(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip, err := netip.ParseAddr(host); err != nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String() // which escapes a zone
}

const (
	year      = 365 * 24 * time.Hour
	beyond    = 100 * year // longer than any time between correct timestamps
	skew      = time.Minute
	inFuture  = "future"
	overAnAge = ">100y"
)

// Short formats a duration with at most two units: 0.4s, 12s, 3m05s, 2h10m, 5d03h, 2y040d. If a clock was wrong or a
// time was written by hand, the duration can be negative or absurdly long. Short then returns "future" or ">100y". A
// duration that is negative by at most a minute counts as zero, because clocks can differ by that much.
func Short(d time.Duration) string {
	switch {
	case d < -skew:
		return inFuture
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 2*year:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	case d < beyond:
		return fmt.Sprintf("%dy%03dd", d/year, d%year/(24*time.Hour))
	}
	return overAnAge
}

// Ago returns how long ago something was, in words for a sentence.
func Ago(d time.Duration) string {
	switch {
	case d < -skew:
		return "in the future, according to its timestamp"
	case d >= beyond:
		return "more than 100 years ago, according to its timestamp"
	}
	return Short(d) + " ago"
}

// Brief formats a duration as users write it, such as 24h instead of 24h0m0s.
func Brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
