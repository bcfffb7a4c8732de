package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// A choice is a flag whose value is one of a list of words.
type choice struct {
	value string
	of    []string
}

// Words returns its possible values.
func (c *choice) Words() []string { return c.of }

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "choice" }

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("want %s", terminal.OneOf(c.of))
	}
	c.value = s
	return nil
}

// choices is a flag whose value is a comma-separated list of such words.
type choices struct {
	values []operator.State
	of     []operator.State
}

// String implements pflag.Value.
func (c *choices) String() string { return strings.Join(texts(c.values), ",") }

// Type implements pflag.Value.
func (c *choices) Type() string { return "choices" }

// Set implements pflag.Value.
func (c *choices) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		if !slices.Contains(c.of, operator.State(word)) {
			return fmt.Errorf("there is no state %q: want %s", word, terminal.OneOf(texts(c.of)))
		}
		c.values = append(c.values, operator.State(word))
	}
	return nil
}

func texts(states []operator.State) (all []string) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

// Complete completes the last word in the flag's value, and offers only words that the value does not have yet.
func (c *choices) Complete(begun string) (found []cobra.Completion) {
	before := begun[:strings.LastIndexByte(begun, ',')+1]
	for _, s := range c.of {
		if !strings.Contains(","+before, ","+string(s)+",") {
			found = append(found, before+string(s))
		}
	}
	return found
}
