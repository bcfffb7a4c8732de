//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	sessions "cloud.google.com/go/spanner/apiv1"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// world is a database that can be lost with all that is in it, and the commands that use it.
type world struct {
	t        *testing.T
	dir      string
	emulator *emulator.Emulator
	link     *network.Link // at which the emulator keeps its address
	path     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	w := &world{t: t, dir: t.TempDir(), emulator: startEmulator(t)}
	var err error
	w.path, err = w.emulator.CreateDatabase(t.Context(), dialect, lockTable)
	require.NoError(t, err)
	w.link, err = network.NewLink(w.emulator.Addr())
	require.NoError(t, err)
	t.Cleanup(w.link.Close)
	return w
}

func startEmulator(t *testing.T) *emulator.Emulator {
	t.Helper()
	e, err := emulator.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// restart kills the emulator, and starts an empty one in its place.
func (w *world) restart() {
	w.t.Helper()
	require.NoError(w.t, w.emulator.Close())
	w.emulator = startEmulator(w.t)
	w.create()
	w.link.Repoint(w.emulator.Addr())
}

// remake drops the database and makes it again.
func (w *world) remake() {
	w.t.Helper()
	require.NoError(w.t, w.emulator.DropDatabase(w.t.Context(), w.path))
	w.create()
}

func (w *world) create() {
	w.t.Helper()
	require.NoError(w.t, w.emulator.CreateDatabaseAgain(w.t.Context(), w.path, dialect, lockTable))
}

// run starts the command, whose output is in the file of that name.
func (w *world) run(file string, args ...string) *exec.Cmd {
	w.t.Helper()
	out, err := os.Create(filepath.Join(w.dir, file))
	require.NoError(w.t, err)
	c := exec.Command("spindle", args...)
	c.Dir, c.Stdout, c.Stderr = w.dir, out, out
	c.Env = append(os.Environ(), "SPINDLE_DB="+w.path, "SPANNER_EMULATOR_HOST="+w.link.Addr())
	require.NoError(w.t, c.Start())
	w.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		_ = out.Close()
	})
	return c
}

// says waits for a file to have a line that matches, and returns the parentheses of the last one.
func (w *world) says(file, pattern string) string {
	w.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	var text []byte
	var found [][][]byte
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%s says %q", file, text)
		}
	}()
	require.Eventually(w.t, func() bool {
		text, _ = os.ReadFile(filepath.Join(w.dir, file))
		found = re.FindAllSubmatch(text, -1)
		return found != nil
	}, patience, 10*time.Millisecond, "%s does not say %q", file, pattern)
	last := found[len(found)-1]
	return string(last[len(last)-1])
}

// loseSessions deletes all sessions of the database, whose data stays.
func (w *world) loseSessions() {
	w.t.Helper()
	c, err := sessions.NewClient(w.t.Context(), w.emulator.ClientOptions()...)
	require.NoError(w.t, err)
	defer c.Close()
	deleted := 0
	for s, err := range c.ListSessions(w.t.Context(), &spannerpb.ListSessionsRequest{Database: w.path}).All() {
		require.NoError(w.t, err)
		require.NoError(w.t, c.DeleteSession(w.t.Context(), &spannerpb.DeleteSessionRequest{Name: s.GetName()}))
		deleted++
	}
	require.NotZero(w.t, deleted)
}

// disasters are what a Spanner client does not survive.
var disasters = map[string]func(*world){
	"the emulator was started again":          (*world).restart,
	"the database was dropped and made again": (*world).remake,
}

func TestCandidatesSurviveTheLossOfTheirSessions(t *testing.T) {
	for name, happens := range disasters {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run("exec", "exec", "--name", "job", "--lease", "1s", "--restart", "--", "sh", "-c", "exec sleep 100")
			w.run("guard", "guard", "--name", "service", "--renew", "300ms", "--confirm", "1",
				"--activate", "echo active >>service", "--deactivate", "echo inactive >>service")
			token := w.says("exec", `holding job, token (\d+)$`)
			w.says("service", `^active$`)
			happens(w)
			w.says("exec", `competing again`)
			w.says("service", `(?s)^active$.*^inactive$.*^active$`)
			again := w.says("exec", `(?s)competing again.*holding job, token (\d+)$`)
			assert.Greater(t, again, token)
		})
	}
}

// If only the session is lost, the term continues under its token, and so does the program.
func TestAHolderGoesOnWithoutItsOldSession(t *testing.T) {
	w := newWorld(t)
	w.run("exec", "exec", "--name", "job", "--lease", "12s", "--", "sh", "-c", "exec sleep 100")
	token := w.says("exec", `holding job, token (\d+)$`)
	w.loseSessions()
	time.Sleep(15 * time.Second)                                          // longer than a lease
	w.run("status", "status", "job", "--token", token, "--timeout", "5m") // the machine may be busy
	w.says("status", `^job is held`)
}
