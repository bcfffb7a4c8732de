package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// length is how many columns a text takes on a terminal: two for each character of Chinese, Japanese or Korean, and for an
// emoji, and none for an accent.
func length(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(s)
		}
	}
	return len(s)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-length(s), 0))
}

// fit cuts a text in its middle: names of locks often differ at their ends.
func fit(s string, width int) string {
	switch {
	case length(s) <= width:
		return s
	case width < 1:
		return ""
	}
	end := width / 2
	return front(s, width-1-end) + "…" + back(s, end)
}

// front is as much of the beginning of a text as the columns have room for.
func front(s string, width int) string {
	n, used, state := 0, 0, -1
	for rest := s; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used += w; used > width {
			break
		}
		n += len(cluster)
	}
	return s[:n]
}

// back is as much of the end of a text as the columns have room for.
func back(s string, width int) string {
	left, state := length(s), -1
	for left > width {
		var w int
		_, s, w, state = uniseg.FirstGraphemeClusterInString(s, state)
		left -= w
	}
	return s
}

// wrap breaks a text into lines, between words, and in the middle of words that are longer than a line. What aligns the words
// of a line stays.
func wrap(text string, width int) []string {
	width = max(width, 2) // the widest character
	var lines []string
	line, used := "", 0
	for i, word := range strings.Split(text, " ") {
		n := length(word)
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
			head := front(line, width)
			lines = append(lines, head)
			line = line[len(head):]
			used = length(line)
		}
	}
	return append(lines, line)
}

// fold wraps each line of a text for the terminal, and keeps its indent. Elsewhere a line is a line.
func fold(p *terminal, text string) string {
	if p.width == 0 {
		return text
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		rest := strings.TrimLeft(line, " ")
		indent := line[:min(len(line)-len(rest), p.width/2)]
		for _, part := range wrap(rest, p.width-len(indent)) {
			lines = append(lines, indent+part)
		}
	}
	return strings.Join(lines, "\n")
}

const (
	year      = 365 * 24 * time.Hour
	beyond    = 100 * year // of no clock that was ever right
	skew      = time.Minute
	inFuture  = "future"
	overAnAge = ">100y"
)

// short writes a duration with two units at most: 0.4s, 12s, 3m05s, 2h10m, 5d03h, 2y040d. Of a time that is far off, as
// somebody wrote it there by hand or a clock was wrong, it only says that.
func short(d time.Duration) string {
	switch {
	case d < -skew:
		return inFuture
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
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

// ago says in a sentence how long ago something was.
func ago(d time.Duration) string {
	switch {
	case d < -skew:
		return "in the future, by its timestamp"
	case d >= beyond:
		return "more than 100 years ago, by its timestamp"
	}
	return short(d) + " ago"
}

// brief writes a duration as people give it: 24h, not 24h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
