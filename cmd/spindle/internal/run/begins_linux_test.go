package run

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// The tests of this file run whole commands up to the moment at which they would compete.

// beginning starts a command with a database that gives one answer, in a unit of systemd. Its messages are in said.
func beginning(t *testing.T, answer error, command func(*database.Database) *cobra.Command, line string) (said *fleet.Log, unit *commandtest.Systemd, end func() error) {
	databaseAnswers(t, answer)
	unit = commandtest.NewSystemd(t, 30*time.Second)
	t.Setenv("NOTIFY_SOCKET", unit.Socket)
	said = commandtest.Captured(t)
	timeout := time.Minute // a refusal comes in time, however busy the machine is
	if answer == nil || status.Code(answer) == codes.Unavailable {
		timeout = time.Second / 20 // an outage lasts until then
	}
	c := command(&database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: timeout})
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(strings.Fields(line))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	return said, unit, func() error {
		cancel()
		err := <-ended
		signal.Reset(passedOn...)
		return err
	}
}

// A unit whose command can't use its database fails to start. If the command were ready before it knows that, systemctl start would
// succeed.
func TestACommandIsNotReadyBeforeItKnowsThatItCanCompete(t *testing.T) {
	for line, command := range map[string]func(*database.Database) *cobra.Command{
		"--name job -- true":                           NewExec,
		"--name job --once 1 -- true":                  NewExec,
		"--name job --activate true --deactivate true": NewGuard,
	} {
		_, unit, end := beginning(t, status.Error(codes.PermissionDenied, "no"), command, line)
		assert.NotContains(t, unit.Until("STOPPING=1"), "READY=1", line)
		assert.ErrorContains(t, end(), "no", line)
	}
}

// A guard that waits for another guard to end answers probes that it is alive, and says what it waits for. Otherwise, an orchestrator would
// restart the guard again and again.
func TestAGuardThatWaitsBehindAnotherIsAlive(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	first := guardWith(func(g *guarding) { g.name, g.deactivate = "job", "true" })
	require.NoError(t, first.takeLockFile())
	defer first.lockFile.End()
	said, unit, end := beginning(t, status.Error(codes.Unavailable, "away"), NewGuard, "--name job --activate true --deactivate true --health-listen 127.0.0.1:0")
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "waiting because another guard") }, 30*time.Second, time.Millisecond, "%s", said)
	answer, err := http.Get(regexp.MustCompile(`http://[^/\s]+`).FindString(said.String()) + "/livez")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Contains(t, string(text), "waiting because another guard")
	var over *terminal.Exit
	require.ErrorAs(t, end(), &over)
	assert.Zero(t, over.Code)
	assert.NotContains(t, unit.Until("STOPPING=1"), "READY=1")
}

// As the first process of a container, exec reaps orphans even while it waits for its lock. No other process reaps them, and a container
// that is full of zombies can start no process.
func TestExecReapsOrphansOfAContainerWhileItWaits(t *testing.T) {
	const role = "SPINDLE_TEST_INIT"
	if os.Getenv(role) == "" {
		c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), role+"=1")
		commandtest.InNamespaces(t, c, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS)
		return
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("proc", "/proc", "proc", 0, ""))
	beginning(t, nil, NewExec, "--name job -- true")
	first := 0
	assert.Eventually(t, func() bool { // each further orphan is another occasion, because exec may begin after the first one has ended
		out, err := exec.Command("sh", "-c", "setsid true >/dev/null 2>&1 & echo $!").Output()
		orphan, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		first = cmp.Or(first, orphan)
		return assert.NoError(t, err) && errors.Is(syscall.Kill(first, 0), syscall.ESRCH)
	}, 10*time.Second, time.Millisecond)
	if !t.Failed() {
		os.Exit(0) // exec goes on, while the test's cleanups would change what it reads
	}
}
