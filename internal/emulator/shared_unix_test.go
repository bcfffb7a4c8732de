//go:build unix

package emulator

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goCommand is a process that stands for the go command of a run.
func goCommand(t *testing.T) (owner, *os.Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait()
	})
	o, name, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.Contains(t, []string{"sleep", filepath.Base(os.Args[0])}, name)
	return o, cmd.Process
}

func TestThoseWhoShareGetOneEmulatorThatEndsWithTheirOwner(t *testing.T) {
	needEmulator(t)
	t.Setenv("TMPDIR", t.TempDir())
	o, process := goCommand(t)

	var wg sync.WaitGroup
	addrs := make([]string, 4)
	for i := range addrs {
		wg.Go(func() {
			e, err := shareWith(t.Context(), o)
			if assert.NoError(t, err) {
				addrs[i] = e.Addr()
				assert.NoError(t, e.Close())
			}
		})
	}
	wg.Wait()
	for _, addr := range addrs {
		require.Equal(t, addrs[0], addr)
	}
	require.NoError(t, reach(t.Context(), addrs[0]), "Close leaves a shared emulator alone")

	// Killed and not waited for, so that it is a zombie.
	require.NoError(t, process.Kill())
	requireEnds(t, addrs[0])
	dir, err := stateDir()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 0
	}, 5*time.Second, 10*time.Millisecond, "the state file is removed")
}

func TestASharedEmulatorThatDiedIsReplaced(t *testing.T) {
	needEmulator(t)
	t.Setenv("TMPDIR", t.TempDir())
	o, process := goCommand(t)
	dead := started(t)
	require.NoError(t, dead.Close())

	dir, err := stateDir()
	require.NoError(t, err)
	state := filepath.Join(dir, stateName(o))
	require.NoError(t, os.WriteFile(state, []byte(dead.Addr()+"and the rest of a longer address"), 0o600))

	e, err := shareWith(t.Context(), o)
	require.NoError(t, err)
	recorded, err := os.ReadFile(state)
	require.NoError(t, err)
	require.Equal(t, e.Addr(), string(recorded))
	require.NoError(t, process.Kill())
	requireEnds(t, e.Addr())
}

func TestAProcessReplacesASharedEmulatorThatDied(t *testing.T) {
	needEmulator(t)
	dead, next := started(t), started(t)
	t.Cleanup(func() { shared.emulator = nil })
	shared.emulator = dead
	require.NoError(t, dead.Close())
	t.Setenv(hostVariable, next.Addr())
	e, err := Shared(t.Context())
	require.NoError(t, err)
	require.Equal(t, next.Addr(), e.Addr())
}

// The system gives the pid of an ended process to another.
func TestAProcessWithThePidOfTheOwnerIsNotTheOwner(t *testing.T) {
	needEmulator(t)
	t.Setenv("TMPDIR", t.TempDir())
	o, _ := goCommand(t)
	o.start = "1"
	e, err := shareWith(t.Context(), o)
	require.NoError(t, err)
	requireEnds(t, e.Addr())
}

func TestAStateDirectoryThatOthersCanWriteToIsRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := stateDir()
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = stateDir()
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "remove it")
}
