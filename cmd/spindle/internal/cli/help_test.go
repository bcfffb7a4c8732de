package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// screen is how many lines of a command's help show its usage, an example, the flags that matter and the exit codes.
const screen = 20

// helps is the file with these lines of every command.
const helps = "help.txt"

// All of a help fits a terminal, and its first screen says how to use the command. The text and the other examples follow.
func TestTheFirstScreenOfAHelpSaysHowToUseTheCommand(t *testing.T) {
	var screens strings.Builder
	terminal.Commands(newRoot(), func(c *cobra.Command) {
		var b bytes.Buffer
		c.SetOut(&b)
		usage := c.UsageString()
		help(c, nil)
		assert.True(t, strings.HasSuffix(b.String(), "\n"+usage), "%s: its end does not describe the flags as they are", c.CommandPath())
		lines := strings.SplitAfter(b.String(), "\n")
		head := strings.Join(lines[:min(len(lines), screen)], "")
		want := []string{"Usage:    " + c.UseLine()[:10], "Example:  spindle", codes}
		for _, name := range first[c.Name()] {
			assert.NotNil(t, c.Flag(name), "%s --%s", c.CommandPath(), name)
		}
		if firstFlags(c) != "" {
			want = append(want, "\n  --")
		}
		for _, part := range want {
			assert.Contains(t, head, part, c.CommandPath())
		}
		text, all, _ := strings.Cut(c.Long, codes)
		_, more := cutExample(c.Example)
		_, below, _ := strings.Cut(strings.TrimSuffix(b.String(), usage), strings.TrimRight(all, "\n")+"\n")
		want = []string{"\n" + strings.TrimSpace(text) + "\n"}
		if more != "" {
			want = append(want, "\nMore examples:\n"+more+"\n")
		}
		assert.Equal(t, strings.Join(want, ""), below, c.CommandPath())
		assert.Contains(t, head, strings.TrimRight(all, "\n"), "all exit codes")
		assert.NotEmpty(t, c.Long, c.Name())
		for line := range strings.Lines(head + c.Long) {
			assert.LessOrEqual(t, terminal.Length(strings.TrimRight(line, "\n")), 80, "%s: %s", c.Name(), line)
		}
		if !c.Hidden {
			screens.WriteString("$ " + c.CommandPath() + " --help | head -20\n" + head + "\n")
		}
	})
	if *update {
		require.NoError(t, os.WriteFile(helps, []byte(screens.String()), 0o644))
	}
	recorded, err := os.ReadFile(helps)
	require.NoError(t, err)
	assert.Equal(t, string(recorded), screens.String(), "if this is intended, run: go test ./cmd/spindle/internal/cli -run FirstScreen -update")
}

// An example with several lines stays in one piece, and each example is shown once.
func TestTheFirstExampleIsShownWhole(t *testing.T) {
	for all, want := range map[string][2]string{
		"":                                  {"", ""},
		"  a":                               {"a", ""},
		"  a\n  b\n  c":                     {"a", "  b\n  c"},
		"  a \\\n    b \\\n    c\n  d\n  e": {"a \\\n          b \\\n          c", "  d\n  e"},
		"  a\n  b \\\n    c":                {"a", "  b \\\n    c"},
		"  a \\":                            {"a \\", ""},
	} {
		example, more := cutExample(all)
		assert.Equal(t, want, [2]string{example, more}, "%q", all)
	}
}

// A flag's line is cut until it fits, at the last place where the rest makes sense, and no line that fits is cut.
func TestALineOfAFlagIsCutUntilItFits(t *testing.T) {
	word := func(n int) string { return strings.Repeat("ü", n) }
	for line, want := range map[string]string{
		word(78):                                 word(78),
		word(40) + " (" + word(35) + ")":         word(40) + " (" + word(35) + ")",
		word(40) + " (" + word(36) + ")":         word(40),
		word(40) + " (b) (" + word(40) + ")":     word(40) + " (b)",
		word(40) + " (b" + word(40) + ") (c)":    word(40),
		word(30) + "; b; " + word(50) + "; d":    word(30) + "; b",
		word(30) + ", b, " + word(50) + ", d, e": word(30) + ", b",
		word(30) + ", b; " + word(50) + " (c)":   word(30) + ", b",
		word(30) + ", " + word(50) + "; c (d)":   word(30),
		"a\u00a0" + word(76):                     "a " + word(76),
		word(79):                                 word(79),
	} {
		assert.Equal(t, want, shorten(line))
	}
}
