package terminal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A Format is the value of --output or --log-format. It is text for people, JSON with one object per line, or one of
// the additional formats that a command supports.
type Format struct {
	text    string // the name of the format for people
	json    bool
	further []string
	kind    string // the further format that was asked for, or ""
}

// The further formats.
const (
	AsName = "name" // only names, one per line
	AsWide = "wide" // a table with more columns, whose lines may be long
)

var formatHelp = map[string]string{AsName: "name (only names)", AsWide: "wide (more columns)"}

// Flag adds --output with the formats table and JSON, and the further formats.
func (f *Format) Flag(flags *pflag.FlagSet, further ...string) {
	f.text, f.further = "table", further
	usage := "the output `format`: table or json (one object per line)"
	if len(further) > 0 {
		usage = "the output `format`: table, json (one object per line)"
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
func (f *Format) String() string {
	switch {
	case f.json:
		return "json"
	case f.kind != "":
		return f.kind
	}
	return f.text
}

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *Format) Set(s string) error {
	f.json, f.kind = s == "json", ""
	switch {
	case slices.Contains(f.further, s):
		f.kind = s
	case !f.json && s != f.text:
		all := f.Words()
		return fmt.Errorf("want %s or %s", strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return nil
}

// Words returns the names of the formats.
func (f *Format) Words() []string {
	return slices.Concat([]string{f.text}, f.further, []string{"json"})
}

// Is reports whether a further format was asked for.
func (f *Format) Is(further string) bool { return f.kind == further }

// Objects reports whether the output is for programs.
func (f *Format) Objects() bool { return f.json }
