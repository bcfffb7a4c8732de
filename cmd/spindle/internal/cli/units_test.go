package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const deploy = "../../../../deploy"

// settings are the assignments of a unit, with their lines joined.
func settings(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			all[name] = append(all[name], value)
		}
	}
	return all
}

var argument = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"|\S+`)

// words are those of a command line as systemd reads it.
func arguments(line string) (all []string) {
	for _, m := range argument.FindAllStringSubmatch(line, -1) {
		w := m[0]
		if strings.HasPrefix(w, `"`) {
			w = strings.ReplaceAll(m[1], `\"`, `"`)
		}
		all = append(all, strings.ReplaceAll(w, "$$", "$"))
	}
	return all
}

// parse reads a command line of this program, and returns its command.
func parse(t *testing.T, args []string) *cobra.Command {
	t.Helper()
	c, flags, err := newRoot().Find(args)
	require.NoError(t, err)
	require.NoError(t, c.ParseFlags(flags))
	require.NoError(t, c.ValidateArgs(c.Flags().Args()))
	return c
}

// People copy the units: systemd and this program must read each line of them as it is meant.
func TestTheUnitsOfSystemdAreRead(t *testing.T) {
	units, err := filepath.Glob(deploy + "/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 3)
	for _, path := range units {
		t.Run(filepath.Base(path), func(t *testing.T) {
			unit := settings(t, path)
			assert.Equal(t, []string{"notify"}, unit["Type"])
			assert.NotEmpty(t, unit["WatchdogSec"])
			require.Len(t, unit["ExecStart"], 1)
			args := arguments(unit["ExecStart"][0])
			require.Equal(t, "/usr/local/bin/spindle", args[0])
			c := parse(t, args[1:])
			for _, hook := range []string{"on-lost", "on-stuck"} {
				if f := c.Flag(hook); f != nil && f.Value.String() != "" {
					command := f.Value.String()
					out, err := exec.Command("/bin/sh", "-n", "-c", command).CombinedOutput()
					assert.NoError(t, err, "%s: %s", hook, out)
					assert.Contains(t, command, `: $SPINDLE_REASON"`)
				}
			}
			for _, e := range unit["Environment"] {
				name, _, _ := strings.Cut(e, "=")
				assert.True(t, setsAFlag(c, name), "no flag of %s has %s", c.Name(), name)
			}
			systemdReads(t, path)
		})
	}
}

func setsAFlag(c *cobra.Command, name string) bool {
	return c.Flag(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "SPINDLE_"), "_", "-"))) != nil
}

// systemdReads asks systemd, where there is one. The programs need not be here.
func systemdReads(t *testing.T, path string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	here := filepath.Join(t.TempDir(), filepath.Base(path))
	for _, program := range []string{"/usr/local/bin/spindle", "/usr/bin/systemctl"} {
		text = []byte(strings.ReplaceAll(string(text), "="+program, "=/bin/sh"))
	}
	require.NoError(t, os.WriteFile(here, text, 0o600))
	out, err := exec.Command(analyze, "verify", here).CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
}

// Operators copy the commands of the runbook in an emergency: this program must read each of them.
func TestTheCommandsOfTheRunbookAreRead(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/runbook.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^ +(?:\$ )?spindle ([^#|>&\n]+)`).FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		t.Run(c[1], func(t *testing.T) { parse(t, strings.Fields(c[1])) })
	}
	assert.Greater(t, len(commands), 12)
}
