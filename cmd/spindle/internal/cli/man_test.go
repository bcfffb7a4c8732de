package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// Each command has a page with what its help says, which man renders without a warning.
func TestEachCommandHasAManPage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1763645616")
	require.NoError(t, writeMan(dir))
	man, err := exec.LookPath("man")
	terminal.Commands(newRoot(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		path := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		page, readErr := os.ReadFile(path)
		require.NoError(t, readErr, "%s has no page", c.CommandPath())
		text := string(page)
		head := fmt.Sprintf(`.TH "%s" "1" "Nov 2025" "spindle %s" "Spindle"`, strings.ToUpper(strings.ReplaceAll(c.CommandPath(), " ", "-")), versionOf(buildInfo()).Version)
		for _, want := range []string{head + "\n", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS"} {
			assert.Contains(t, text, want, c.Name())
		}
		for _, literal := range []string{"<nil>", "```", "\n.\\\"\n'"} {
			assert.NotContains(t, text, literal, c.Name())
		}
		if err == nil {
			rendersAll(t, man, path, c)
		}
	})
}

// What is laid out by hand is a block of code of Markdown, with an empty line around it: otherwise a page would join its lines. The rest is
// text, in which nothing is emphasis.
func TestWhatIsLaidOutByHandIsABlockOfCode(t *testing.T) {
	for help, want := range map[string]string{
		"":                                    "",
		"One.\nTwo.\n\nThree.\n":              "One.\nTwo.\n\nThree.\n",
		"Run:\n  a *b\n    c_d\nThen.\n":      "Run:\n\n    a *b\n      c_d\n\nThen.\n",
		"Run:\n\n  a\n\n  b\n\nThen *a_b*.\n": "Run:\n\n\n    a\n\n    b\n\n\nThen \\*a\\_b\\*.\n",
		"  a\n":                               "\n    a\n",
		"A\n b\n  c":                          "A\n b\n\n    c",
	} {
		assert.Equal(t, want, markdown(help), "%q", help)
	}
	terminal.Commands(forMan(newRoot()), func(c *cobra.Command) {
		assert.True(t, c.DisableAutoGenTag, "%s: a page that is generated twice differs", c.Name())
		for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { assert.NotContains(t, f.Usage, "`", "%s --%s", c.Name(), f.Name) })
		}
	})
}

// rendersAll wants each word of the help on the page.
func rendersAll(t *testing.T, man, page string, c *cobra.Command) {
	t.Helper()
	show := exec.Command(man, "--warnings=w", "-l", page)
	show.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8", "MAN_KEEP_FORMATTING=", "MANPAGER=cat")
	var said strings.Builder
	show.Stderr = &said
	out, err := show.Output()
	require.NoError(t, err, "%s: %s", page, said.String())
	assert.Empty(t, said.String(), page)
	shown := squeezed(string(out))
	for line := range strings.Lines(c.Long) {
		for _, word := range strings.Fields(line) {
			assert.True(t, strings.Contains(shown, squeezed(word)), "%s: not on the page: %s", c.Name(), line)
		}
	}
	for line := range strings.Lines(c.Long) {
		if strings.HasPrefix(line, "  ") {
			assert.True(t, strings.Contains(string(out), strings.TrimSpace(line)), "%s: not as it was laid out by hand: %s", c.Name(), line)
		}
	}
}

// squeezed is a text without what a page adds: hyphens at the ends of lines, and space.
func squeezed(s string) string {
	return strings.NewReplacer("‐\n", "", "-", "", "−", "", "‐", "", " ", "", "\n", "", "\t", "", "'", "’", "\"", "", "“", "", "”", "").Replace(s)
}
