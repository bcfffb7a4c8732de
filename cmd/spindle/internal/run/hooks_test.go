//go:build unix

package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// log has what hooks say.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) warn(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}

// contents waits for a file, and for what is in it.
func contents(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	require.Eventually(t, func() (ok bool) {
		text, _ = os.ReadFile(path)
		return len(text) > 0 && text[len(text)-1] == '\n'
	}, 30*time.Second, time.Millisecond, path)
	return strings.TrimSpace(string(text))
}

func TestAtMostOneHookOfAKindRunsAtATime(t *testing.T) {
	var l log
	dir := t.TempDir()
	h := &hooks{Limit: time.Minute, Warn: l.warn, Commands: [...]string{onStuck: "", onAcquire: "echo a >>" + dir + "/a; while [ ! -e " + dir + "/end ]; do sleep 0.01; done", onLost: "echo l >" + dir + "/l"}}
	h.Run(onAcquire, os.Environ)
	contents(t, dir+"/a")
	h.Run(onAcquire, os.Environ)
	h.Run(onLost, os.Environ)
	contents(t, dir+"/l")
	lines := l.all()
	assert.Equal(t, []string{"--on-acquire was skipped because its previous run has not finished"}, lines)
	require.NoError(t, os.WriteFile(dir+"/end", nil, 0o600))
	h.Wait(nil)
	assert.Equal(t, "a", contents(t, dir+"/a"))
	h.Run(onAcquire, os.Environ)
	h.Wait(nil)
	assert.Equal(t, "a\na", contents(t, dir+"/a"))
}

// tooLong is longer than one argument of a program may be, so a command with it can't be started.
var tooLong = "true " + strings.Repeat("x", 1<<21)

// A hook's failure is said and counted once, whatever the failure is and whether somebody counts, and the hook runs again at the next
// event. Its environment is the event's, even if that has changed by the time it starts.
func TestAHookThatFailsIsSaidAndCountedAndRunsAgain(t *testing.T) {
	for _, r := range []struct{ command, warns string }{
		{"true", ""},
		{"exit 3", "exit code 3"},
		{"kill -9 $$", "exit code 137"},
		{"sleep 1000", "killed after 100ms"},
		{tooLong, "can't be run"},
	} {
		for _, counts := range []bool{false, true} {
			var l log
			var failed []hookKind
			out := filepath.Join(t.TempDir(), "out")
			h := &hooks{Warn: l.warn}
			if h.Commands[onLost] = "echo $EVENT >>" + out + "; " + r.command; r.command == tooLong {
				h.Commands[onLost] = tooLong
			}
			limit := time.Minute
			if strings.HasPrefix(r.warns, "killed") {
				limit = 100 * time.Millisecond
			}
			if counts {
				h.Failed = func(k hookKind) { failed = append(failed, k) }
			}
			for event := range 2 {
				asked := 0
				h.Limit = limit
				h.Run(onLost, func() []string { asked++; return append(os.Environ(), fmt.Sprint("EVENT=", event)) })
				require.Equal(t, 1, asked)
				h.Run(onAcquire, func() []string { asked++; return nil })
				require.Equal(t, 1, asked, "there is no such hook")
				h.Limit = time.Minute // a busy machine may need longer to end it
				h.Wait(nil)
			}
			want := 0
			if r.warns != "" {
				want = 2
			}
			require.Len(t, l.all(), want, r.warns)
			for _, line := range l.all() {
				assert.Contains(t, line, "--on-lost failed, which does not affect the lock: ")
				assert.Contains(t, line, r.warns)
			}
			if counts {
				assert.Equal(t, slices.Repeat([]hookKind{onLost}, want), append([]hookKind{}, failed...))
			}
			if r.command != tooLong && limit == time.Minute { // it may be killed before it says anything
				assert.Equal(t, "0\n1", contents(t, out))
			}
		}
	}
}

// A command that is ended has exited when that is reported: what undoes it may begin then. After the end, no command is started.
func TestACommandThatIsEndedHasExitedWhenThatIsReported(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "pid")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error)
		go func() {
			err := shell(ctx, "echo $$ >"+path+"; exec sleep 1000", child.Command{})
			text, _ := os.ReadFile(path)
			if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); syscall.Kill(pid, 0) == nil {
				err = fmt.Errorf("process %d is there", pid)
			}
			ended <- err
		}()
		contents(t, path)
		stop()
		assert.ErrorIs(t, <-ended, context.Canceled)
		assert.ErrorIs(t, shell(ctx, tooLong, child.Command{}), context.Canceled)
	}
}

// The end waits for hooks, but not for longer than a hook may run, and not after stop is closed.
func TestTheEndWaitsForHooksOnlyAsLongAsTheyMayRun(t *testing.T) {
	var l log
	path := filepath.Join(t.TempDir(), "pid")
	h := &hooks{Limit: time.Minute, Warn: l.warn, Commands: [...]string{onStuck: "", onAcquire: "echo $$ >" + path + "; exec sleep 100"}}
	h.Limit = 10 * time.Second
	h.Run(onAcquire, os.Environ)
	contents(t, path)
	stop := make(chan os.Signal, 2)
	stop <- syscall.SIGUSR1
	stop <- syscall.SIGTERM
	begun := time.Now()
	h.Wait(stop)
	assert.Less(t, time.Since(begun), h.Limit/2)

	h.Limit = 100 * time.Millisecond // as if it had been killed, and did not end
	h.Wait(nil)
	assert.Less(t, time.Since(begun), 5*time.Second)
	lines := l.all()
	assert.Equal(t, []string{"a hook was killed but has not exited; not waiting any longer"}, lines)
	pid, err := strconv.Atoi(contents(t, path))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	h.Limit = time.Minute
	h.Wait(nil)
}
