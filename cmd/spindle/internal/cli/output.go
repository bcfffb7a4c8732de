package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/internal/table"
)

// A format is what --output and --log-format ask for: text for people, or JSON, one object on each line.
type format struct {
	text string // the name of the format for people
	json bool
}

func (f *format) flag(flags *pflag.FlagSet) {
	f.text = "table"
	flags.VarP(f, "output", "o", "the `format` of the output: table, or json with one object on each line")
}

// String implements pflag.Value.
func (f *format) String() string {
	if f.json {
		return "json"
	}
	return f.text
}

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	if f.json = s == "json"; !f.json && s != f.text {
		return fmt.Errorf("want %s or json", f.text)
	}
	return nil
}

// lockJSON is a lock as scripts see it.
type lockJSON struct {
	Name         string     `json:"name"`
	State        string     `json:"state"`
	Holder       string     `json:"holder,omitempty"`
	Value        string     `json:"value,omitempty"`
	Token        string     `json:"token,omitempty"` // a string, as some languages lose digits of JSON numbers
	Since        *time.Time `json:"since,omitempty"`
	Heartbeat    *time.Time `json:"heartbeat,omitempty"`
	AgeSeconds   *float64   `json:"heartbeat_age_seconds,omitempty"`
	LeaseSeconds float64    `json:"lease_seconds,omitempty"`
	At           time.Time  `json:"at"`
	Problem      string     `json:"problem,omitempty"`
	Done         string     `json:"done,omitempty"` // the key of what was done last
	DoneBy       string     `json:"done_by,omitempty"`
	DoneAt       *time.Time `json:"done_at,omitempty"`
	DoneAge      *float64   `json:"done_age_seconds,omitempty"`
	Waiting      int        `json:"waiting,omitempty"`          // how many wait for it
	WaitingMore  bool       `json:"waiting_at_least,omitempty"` // and more may
	LongestWait  *float64   `json:"longest_wait_seconds,omitempty"`
	Group        string     `json:"group,omitempty"` // that it is a part of
	Partition    string     `json:"partition,omitempty"`
	Member       string     `json:"member,omitempty"` // of a partition: the lock of who has it, or had it last
}

func jsonOf(l table.Listing) lockJSON {
	j := lockJSON{Name: l.Name, State: string(l.State()), Holder: l.Holder(), At: l.At.UTC()}
	if l.Token != 0 {
		since := l.Since().UTC()
		j.Token, j.Since = l.Token.String(), &since
	}
	if l.State() == table.Released {
		j.Token = "" // it is no term's
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
	} else if l.Undone != nil {
		j.Problem = l.Undone.Error()
	}
	if l.Done.Key != "" {
		at, age := l.Done.At.UTC(), l.At.Sub(l.Done.At).Seconds()
		j.Done, j.DoneBy, j.DoneAt, j.DoneAge = l.Done.Key, l.Done.By, &at, &age
	}
	if len(l.Waiters) > 0 {
		longest := l.LongestWait().Seconds()
		j.Waiting, j.WaitingMore, j.LongestWait = len(l.Waiters), l.Cut, &longest
	}
	if part, _ := table.PartOf(l.Name); l.IsPart() {
		j.Group, j.Partition, j.Member = part.Group, part.Partition, l.Member.Name
	}
	return j
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(escapingJSON{w})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
