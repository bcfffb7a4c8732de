package watch

import (
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// cell cuts or pads a text to a width.
func cell(text string, width int) string { return terminal.Pad(terminal.Cut(text, width), width) }

// seconds formats an age without fractions of a second, which would only flicker.
func seconds(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	if d >= time.Hour {
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return d.String()
}

// bar fills a share of the width, in steps of an eighth of a character.
func bar(share float64, width int) string {
	eighths := int(min(max(share, 0), 1)*float64(width)*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return text + strings.Repeat("·", width-terminal.Length(text))
}
