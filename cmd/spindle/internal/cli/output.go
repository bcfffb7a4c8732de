package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/internal/table"
)

// A format is what --output and --log-format ask for: text for people, JSON with one object on each line, or one of the
// further ones that a command has.
type format struct {
	text    string // the name of the format for people
	json    bool
	further []string
	kind    string // the further one that was asked for, if that is so
}

// The further formats.
const (
	asYAML = "yaml" // a document for each object
	asName = "name" // only names, one on each line
	asWide = "wide" // a table with more columns, whose lines may be long
)

var formatHelp = map[string]string{asYAML: "yaml with one document for each", asName: "name with only the names", asWide: "wide with more columns"}

// flag adds --output with table, JSON and the further formats.
func (f *format) flag(flags *pflag.FlagSet, further ...string) {
	f.text, f.further = "table", further
	usage := "the `format` of the output: table, or json with one object on each line"
	if len(further) > 0 {
		usage = "the `format` of the output: table, json with one object on each line"
		for i, name := range further {
			if usage += ", "; i == len(further)-1 {
				usage += "or "
			}
			usage += formatHelp[name]
		}
	}
	flags.VarP(f, "output", "o", usage)
}

// String implements pflag.Value.
func (f *format) String() string {
	switch {
	case f.json:
		return "json"
	case f.kind != "":
		return f.kind
	}
	return f.text
}

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	f.json, f.kind = s == "json", ""
	switch {
	case slices.Contains(f.further, s):
		f.kind = s
	case !f.json && s != f.text:
		all := f.all()
		return fmt.Errorf("want %s or %s", strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return nil
}

// all are the names of the formats.
func (f *format) all() []string { return slices.Concat([]string{f.text}, f.further, []string{"json"}) }

// objects reports whether the output is for programs.
func (f *format) objects() bool { return f.json || f.kind == asYAML }

// print writes an object as JSON or YAML.
func (f *format) print(w io.Writer, v any) error {
	if f.kind == asYAML {
		return printYAML(w, v)
	}
	return printJSON(w, v)
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
		heartbeat, age := l.Heartbeat.UTC(), seconds(l.Heartbeat, l.At)
		j.Heartbeat, j.AgeSeconds = &heartbeat, &age
	}
	if l.LeaseRecord != nil {
		j.Value, j.LeaseSeconds = l.LeaseRecord.Value, l.LeaseRecord.Lease.Seconds()
	}
	if l.Unreadable != nil {
		j.Problem = l.Unreadable.Error()
	} else if l.Undone != nil {
		j.Problem = l.Undone.Error()
	}
	if l.Done.Key != "" {
		at, age := l.Done.At.UTC(), seconds(l.Done.At, l.At)
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

// seconds is the time from one instant to another, also if that is more than a time.Duration can be.
func seconds(from, to time.Time) float64 { return float64(to.UnixMicro()-from.UnixMicro()) / 1e6 }

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(escaping{Writer: w})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
