package terminal

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// A Choice is a flag whose value is one of a list of words.
type Choice struct {
	Value string
	words []string
	kind  string
}

// Choose returns a Choice whose default is the first word. Kind is its type in commandline.txt.
func Choose(kind string, words ...string) Choice { return Choice{words[0], words, kind} }

// Options returns the words.
func (c *Choice) Options() []string { return c.words }

// String implements pflag.Value.
func (c *Choice) String() string { return c.Value }

// Type implements pflag.Value.
func (c *Choice) Type() string { return c.kind }

// Set implements pflag.Value.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("must be %s", OneOf(c.words))
	}
	c.Value = s
	return nil
}

// A Format is the value of --output or --log-format: a table or text for people, JSON with one object per line, or
// another format that the command supports.
type Format struct{ Choice }

// The further formats.
const (
	AsName = "name" // only names, one per line
	AsWide = "wide" // a table with more columns, whose lines may be long
)

func newFormat(words ...string) Format {
	return Format{Choose("format", append(words, "json")...)}
}

// Flag adds --output with the formats table and json, and with the further formats.
func (f *Format) Flag(flags *pflag.FlagSet, further ...string) {
	*f = newFormat(append([]string{"table"}, further...)...)
	usage := "the output `format`: table or json (one object per line)"
	if len(further) > 0 { // ls has both
		usage = "the output `format`: table, json (one object per line), wide (more columns), or name (only names)"
	}
	flags.VarP(f, "output", "o", usage)
}

// Objects reports whether the format is JSON.
func (f *Format) Objects() bool { return f.Value == "json" }
