package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestHelpFitsATerminal(t *testing.T) {
	commands(newRoot(), func(c *cobra.Command) {
		assert.NotEmpty(t, c.Long, c.Name())
		for line := range strings.Lines(c.Long) {
			assert.LessOrEqual(t, length(strings.TrimRight(line, "\n")), 80, "%s: %s", c.Name(), line)
		}
	})
}
