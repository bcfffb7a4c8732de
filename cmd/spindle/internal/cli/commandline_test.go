package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

var update = flag.Bool("update", false, "write commandline.txt anew")

// commandLine is the file with what scripts can pass to spindle. The tests of verify/versions compare it with the file of
// the previous version.
const commandLine = "commandline.txt"

// A change that removes or renames a command, a flag or a variable, or gives a flag another type, must also change a line
// of that file. A reviewer then sees it.
func TestTheCommandLineIsAsRecorded(t *testing.T) {
	var b strings.Builder
	terminal.Commands(newRoot(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		path := c.CommandPath()
		fmt.Fprintln(&b, path)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden && f.Deprecated == "" || f.Name == "help" { // a deprecated flag stays
				return
			}
			fmt.Fprintf(&b, "%s --%s: %s\n", path, f.Name, f.Value.Type())
			if f.Shorthand != "" {
				fmt.Fprintf(&b, "%s -%s: --%s\n", path, f.Shorthand, f.Name)
			}
			if terminal.HasVariable(f) {
				fmt.Fprintf(&b, "%s $%s: --%s\n", path, terminal.Variable(f), f.Name)
			}
		})
	})
	if *update {
		require.NoError(t, os.WriteFile(commandLine, []byte(b.String()), 0o644))
	}
	recorded, err := os.ReadFile(commandLine)
	require.NoError(t, err)
	assert.Equal(t, string(recorded), b.String(), "if what is missing may go (docs/stability.md): go test ./cmd/spindle/internal/cli -update")
}
