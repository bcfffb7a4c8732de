//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command that needs one answer of the database gives up once --timeout has passed, and says so. Those that go on try again.
func TestNoCommandWaitsLongerForADatabaseThanItsTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	asks := map[string][]string{
		"ls": {""}, "status": {"m", "--expect m"}, "members": {"m"}, "doctor": {""}, "prune": {"", "--dry-run"},
		"handover": {"m", "m --wait 1h"}, "release": {"m --token 1 --yes"}, "init": {"", "--create"},
		"exec": {"--name m --try -- true", "--name m --once 1 --try -- true"},
	}
	goesOn := []string{"watch", "serve", "guard", "agent"}
	for _, command := range commands(commandLine(t)) {
		if slices.Contains(goesOn, command) || slices.Contains(touchesNothing, command) {
			continue
		}
		assert.NotEmpty(t, asks[command], "how does %q ask the database?", command)
		for _, args := range asks[command] {
			t.Run(command+" "+args, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				run := exec.CommandContext(ctx, "spindle", slices.Insert(strings.Fields(command+" "+args), 1, "--timeout", "1s")...)
				run.Env = append(os.Environ(), "SPINDLE_DB=projects/p/instances/i/databases/d", "SPANNER_EMULATOR_HOST="+silent.Addr().String())
				out, err := run.CombinedOutput()
				require.NoError(t, ctx.Err(), "it did not give up: %s", out)
				require.Error(t, err)
				assert.Equal(t, 1, run.ProcessState.ExitCode())
				assert.Regexp(t, "the database can't be reached; check that|no emulator answers at", string(out))
			})
		}
	}
}
