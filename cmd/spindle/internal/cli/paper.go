package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// A format is how something is printed: as a table, for people, or as JSON, one object on each line.
type format string

const (
	asTable format = "table"
	asJSON  format = "json"
)

func (f *format) flag(flags *pflag.FlagSet) {
	*f = asTable
	flags.VarP(f, "output", "o", "`table` or json: one object on each line")
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	if *f = format(s); *f != asTable && *f != asJSON {
		return fmt.Errorf("table or json is wanted")
	}
	return nil
}

// A style is how text looks on a terminal that has colours.
type style string

const (
	plain style = ""
	green style = "\x1b[32m"
	red   style = "\x1b[31m"
	amber style = "\x1b[33m"
	bold  style = "\x1b[1m"
	faint style = "\x1b[2m"
)

var styles = map[table.State]style{
	table.Held: green, table.Expired: red, table.Released: faint, table.Unconfirmed: amber,
	table.Orphaned: red, table.Unreadable: red, table.Free: faint,
}

// paper is what is printed on.
type paper struct {
	io.Writer
	terminal bool
	colour   bool
	width    int // 0: endless
	height   int
}

func paperOn(f *os.File) *paper {
	p := &paper{Writer: f, terminal: term.IsTerminal(int(f.Fd()))}
	p.colour = p.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	p.measure(f)
	return p
}

func (p *paper) measure(f *os.File) {
	if !p.terminal {
		return
	}
	var err error
	if p.width, p.height, err = term.GetSize(int(f.Fd())); err != nil || p.width < 20 || p.height < 5 {
		p.width, p.height = 80, 24
	}
}

func (p *paper) paint(s style, text string) string {
	if !p.colour || s == plain || text == "" {
		return text
	}
	return string(s) + text + "\x1b[0m"
}

func length(s string) int { return utf8.RuneCountInString(s) }

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-length(s), 0))
}

// fit shortens a text from its end.
func fit(s string, width int) string {
	if length(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// show makes a text of somebody else's harmless on a terminal.
func show(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// short writes a duration with as much of it as matters: 0.4s, 12s, 3m05s, 2h10m, 5d3h.
func short(d time.Duration) string {
	switch {
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
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// lockJSON is a lock as scripts see it.
type lockJSON struct {
	Name         string     `json:"name"`
	State        string     `json:"state"`
	Holder       string     `json:"holder,omitempty"`
	Value        string     `json:"value,omitempty"`
	Token        string     `json:"token,omitempty"` // as a string: JSON numbers lose digits in some languages
	Since        *time.Time `json:"since,omitempty"`
	Heartbeat    *time.Time `json:"heartbeat,omitempty"`
	AgeSeconds   *float64   `json:"heartbeat_age_seconds,omitempty"`
	LeaseSeconds float64    `json:"lease_seconds,omitempty"`
	At           time.Time  `json:"at"`
	Problem      string     `json:"problem,omitempty"`
}

func jsonOf(l table.Listing) lockJSON {
	j := lockJSON{Name: l.Name, State: string(l.State()), Holder: l.Writer, At: l.At.UTC()}
	if l.Token != 0 {
		since := l.Token.Time()
		j.Token, j.Since = spindle.Token(l.Token).String(), &since
	}
	if l.State() == table.Released {
		j.Token = "" // it is of no term
	}
	if !l.Heartbeat.IsZero() {
		heartbeat, age := l.Heartbeat.UTC(), l.At.Sub(l.Heartbeat).Seconds()
		j.Heartbeat, j.AgeSeconds = &heartbeat, &age
	}
	if l.Promise != nil {
		j.Value, j.LeaseSeconds = l.Promise.Value, l.Promise.Lease.Seconds()
	}
	if l.Unreadable != nil {
		j.Problem = l.Unreadable.Error()
	}
	return j
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
