package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

func TestHelpFitsATerminal(t *testing.T) {
	flags.Commands(newRoot(), func(c *cobra.Command) {
		assert.NotEmpty(t, c.Long, c.Name())
		for line := range strings.Lines(c.Long) {
			assert.LessOrEqual(t, terminal.Length(strings.TrimRight(line, "\n")), 80, "%s: %s", c.Name(), line)
		}
	})
}
