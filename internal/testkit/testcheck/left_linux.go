package testcheck

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// between is the pause between two counts. A shorter pause would cost too much time, because each count of the
// processes reads a file for every process on the machine.
const between = 20 * time.Millisecond

// NothingLeft fails the test if f leaves a process, an open file or a goroutine behind.
func NothingLeft(t *testing.T, f func()) {
	t.Helper()
	processes, files, goroutines := children(t), opened(t), goleak.IgnoreCurrent()
	f()
	require.Eventually(t, func() bool { return children(t) <= processes }, 10*time.Second, between, "a process is left running")
	require.Eventually(t, func() bool { return opened(t) <= files }, 10*time.Second, between, "a file is left open")
	NoLeak(t, goroutines)
}

// children returns the number of processes that this one has started and has not waited for.
func children(t *testing.T) (n int) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var state string
		var parent int
		_, err = fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent)
		require.NoError(t, err)
		if parent == os.Getpid() {
			n++
		}
	}
	return n
}

func opened(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
