package terminal

import (
	"fmt"
	"strings"
	"time"
)

const (
	year      = 365 * 24 * time.Hour
	beyond    = 100 * year // further than any correct clock can be off
	skew      = time.Minute
	inFuture  = "future"
	overAnAge = ">100y"
)

// Short formats a duration with at most two units: 0.4s, 12s, 3m05s, 2h10m, 5d03h, 2y040d. A time may be far off,
// because a clock was wrong or the time was written by hand. For such a time, Short returns only "future" or ">100y".
func Short(d time.Duration) string {
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

// Ago returns how long ago something was, in words for a sentence.
func Ago(d time.Duration) string {
	switch {
	case d < -skew:
		return "in the future, by its timestamp"
	case d >= beyond:
		return "more than 100 years ago, by its timestamp"
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
