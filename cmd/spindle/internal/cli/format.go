package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
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
		all := f.Words()
		return fmt.Errorf("want %s or %s", strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return nil
}

// Words are the names of the formats.
func (f *format) Words() []string {
	return slices.Concat([]string{f.text}, f.further, []string{"json"})
}

// is reports whether a further format was asked for.
func (f *format) is(further string) bool { return f.kind == further }

// objects reports whether the output is for programs.
func (f *format) objects() bool { return f.json || f.kind == asYAML }

// print writes an object as JSON or YAML.
func (f *format) print(w io.Writer, v any) error {
	if f.kind == asYAML {
		return printYAML(w, v)
	}
	return printJSON(w, v)
}
