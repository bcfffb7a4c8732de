package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// first lists, for each command, the flags that a reader needs first. For a command that is not listed, these are all
// of its own flags.
var first = map[string][]string{
	"spindle": {"db", "table"},
	"exec":    {"name", "lease", "try", "every", "restart"},
	"guard":   {"name", "activate", "deactivate", "healthcheck"},
	"ls":      {"state", "watch", "all", "output"},
	"status":  {"id", "token", "expect", "quiet"},
	"watch":   {"prefix", "every", "output"},
	"serve":   {"listen", "expect", "every"},
	"agent":   {"listen", "mode", "allow-name", "probe-listen"},
	"prune":   {"older", "expired-older", "dry-run"},
	"init":    {"create", "print", "dialect"},

	"handover": {"token", "wait", "output"},
	"release":  {"token", "yes", "output"},
}

// codes is the heading of the exit codes, which are the last part of each command's text.
const codes = "Exit codes:\n"

// help first prints what a reader needs most, on one screen: the usage, an example, the most important flags and the
// exit codes. The text, the other examples and all flags follow.
func help(c *cobra.Command, _ []string) {
	text, ends, _ := strings.Cut(c.Long, codes)
	example, more := cutExample(c.Example)
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\nUsage:    %s\n", c.Short, c.UseLine())
	if example != "" {
		fmt.Fprintf(&b, "Example:  %s\n", example)
	}
	if f := firstFlags(c); f != "" {
		fmt.Fprintf(&b, "\nFlags (the others are below):\n%s", f)
	}
	if ends != "" {
		fmt.Fprintf(&b, "\n%s%s\n", codes, strings.TrimRight(ends, "\n"))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(text))
	if more != "" {
		fmt.Fprintf(&b, "\nMore examples:\n%s\n", more)
	}
	fmt.Fprint(c.OutOrStdout(), b.String()+c.UsageString())
}

// cutExample returns the first of a command's examples, and the others.
func cutExample(all string) (example, more string) {
	lines := strings.Split(all, "\n")
	n := 1
	for n < len(lines) && strings.HasSuffix(lines[n-1], `\`) {
		n++
	}
	return strings.TrimSpace(strings.Join(lines[:n], "\n      ")), strings.Join(lines[n:], "\n")
}

// firstFlags describes the flags that a reader needs first, each in one line.
func firstFlags(c *cobra.Command) string {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	add := func(f *pflag.Flag) {
		if f == nil || f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		short := *f
		short.Shorthand, short.NoOptDefVal = "", ""
		short.Usage = strings.TrimPrefix(short.Usage, "* ")
		set.AddFlag(&short)
	}
	if names := first[c.Name()]; names != nil {
		for _, name := range names {
			add(c.Flag(name))
		}
	} else {
		c.LocalNonPersistentFlags().VisitAll(add)
	}
	var b strings.Builder
	for line := range strings.Lines(set.FlagUsages()) {
		b.WriteString("  " + shorten(strings.TrimSpace(line)) + "\n")
	}
	return b.String()
}

// shorten leaves out the end of a line that would not fit on a terminal.
func shorten(line string) string {
	line = strings.ReplaceAll(line, "\u00a0", " ") // keeps words together where a line is wrapped
	for _, end := range []string{" (", "; ", ", "} {
		for terminal.Length(line) > 78 && strings.Contains(line, end) {
			line = line[:strings.LastIndex(line, end)]
		}
	}
	return line
}
