//go:build unix

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// log has what hooks say.
type log struct {
	mu     sync.Mutex
	lines  []string
	failed []hookKind
}

func (l *log) warn(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) all() ([]string, []hookKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines, l.failed
}

func newHooks(l *log, commands map[hookKind]string) *hooks {
	return &hooks{Commands: commands, Limit: time.Minute, Warn: l.warn, Failed: func(k hookKind) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = append(l.failed, k)
	}}
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

func gone(t *testing.T, path string) {
	t.Helper()
	pid, err := strconv.Atoi(contents(t, path))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(stat), ") Z ") // nobody reaps it here
	}, 30*time.Second, time.Millisecond)
}

func TestAHookRunsInItsEnvironment(t *testing.T) {
	var l log
	path := filepath.Join(t.TempDir(), "out")
	h := newHooks(&l, map[hookKind]string{onLost: `echo "$LOCK: $REASON" >"$OUT"`})
	h.Run(onLost, func() []string { return []string{"LOCK=nightly", "REASON=a 'b' $c", "OUT=" + path} })
	h.Run(onAcquire, func() []string { panic("there is no such hook") })
	h.Wait(nil)
	assert.Equal(t, "nightly: a 'b' $c", contents(t, path))
	lines, _ := l.all()
	assert.Empty(t, lines)
}

// A hook is told what was true when its event happened, such as the token of the term that was lost, even if the next term begins
// at once.
func TestAHookIsToldWhatWasTrueWhenItsEventHappened(t *testing.T) {
	var l log
	path := filepath.Join(t.TempDir(), "out")
	h := newHooks(&l, map[hookKind]string{onLost: `echo "$TOKEN" >>"$OUT"`})
	var token atomic.Int64
	for token.Store(1); token.Load() <= 5; {
		h.Run(onLost, func() []string { return []string{fmt.Sprintf("TOKEN=%d", token.Load()), "OUT=" + path} })
		token.Add(1)
		h.Wait(nil)
	}
	assert.Equal(t, "1\n2\n3\n4\n5", contents(t, path))
}

func TestAHookThatFailsIsSaidOnceAndChangesNothingElse(t *testing.T) {
	var l log
	h := newHooks(&l, map[hookKind]string{onStuck: "exit 3"})
	h.Run(onStuck, os.Environ)
	h.Wait(nil)
	lines, failed := l.all()
	assert.Equal(t, []string{"--on-stuck failed, which does not affect the lock: exit 3: exit code 3"}, lines)
	assert.Equal(t, []hookKind{onStuck}, failed)
	h.Run(onStuck, os.Environ)
	h.Wait(nil)
	_, failed = l.all()
	assert.Len(t, failed, 2, "it runs again the next time")
}

// A hook that hangs, and ignores SIGTERM, is killed with what it has started in its group.
func TestAHookThatHangsIsKilledWithItsGroup(t *testing.T) {
	t.Parallel()
	var l log
	dir := t.TempDir()
	h := newHooks(&l, map[hookKind]string{onAcquire: `trap "" TERM; sleep 100 & echo $! >sub; echo $$ >hook; while :; do wait; done`})
	h.Commands[onAcquire] = "cd " + dir + "; " + h.Commands[onAcquire]
	h.Limit = 8 * time.Second // a busy machine may need seconds to start a shell
	begun := time.Now()
	h.Run(onAcquire, os.Environ)
	assert.Less(t, time.Since(begun), h.Limit, "it delays nobody")
	h.Wait(nil)
	gone(t, filepath.Join(dir, "hook"))
	gone(t, filepath.Join(dir, "sub"))
	lines, failed := l.all()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "killed after 8s")
	assert.Equal(t, []hookKind{onAcquire}, failed)
}

// Nothing that a hook leaves in its group outlives it.
func TestNothingIsLeftOfAHook(t *testing.T) {
	var l log
	path := filepath.Join(t.TempDir(), "sub")
	h := newHooks(&l, map[hookKind]string{onLost: "sleep 100 & echo $! >" + path})
	h.Run(onLost, os.Environ)
	h.Wait(nil)
	gone(t, path)
}

func TestAtMostOneHookOfAKindRunsAtATime(t *testing.T) {
	var l log
	dir := t.TempDir()
	h := newHooks(&l, map[hookKind]string{onAcquire: "echo a >>" + dir + "/a; while [ ! -e " + dir + "/end ]; do sleep 0.01; done", onLost: "echo l >" + dir + "/l"})
	h.Run(onAcquire, os.Environ)
	contents(t, dir+"/a")
	h.Run(onAcquire, os.Environ)
	h.Run(onLost, os.Environ)
	contents(t, dir+"/l")
	lines, failed := l.all()
	assert.Equal(t, []string{"--on-acquire was skipped because its previous run has not finished"}, lines)
	assert.Empty(t, failed)
	require.NoError(t, os.WriteFile(dir+"/end", nil, 0o600))
	h.Wait(nil)
	assert.Equal(t, "a", contents(t, dir+"/a"))
	h.Run(onAcquire, os.Environ)
	h.Wait(nil)
	assert.Equal(t, "a\na", contents(t, dir+"/a"))
}

// The end waits for hooks, but not for longer than a hook may run, and not after stop is closed.
func TestTheEndWaitsForHooksOnlyAsLongAsTheyMayRun(t *testing.T) {
	var l log
	path := filepath.Join(t.TempDir(), "pid")
	h := newHooks(&l, map[hookKind]string{onAcquire: "echo $$ >" + path + "; exec sleep 100"})
	h.Limit = 10 * time.Second
	h.Run(onAcquire, os.Environ)
	contents(t, path)
	stop := make(chan struct{})
	close(stop)
	begun := time.Now()
	h.Wait(stop)
	assert.Less(t, time.Since(begun), h.Limit/2)

	h.Limit = 100 * time.Millisecond // as if it had been killed, and did not end
	h.Wait(nil)
	assert.Less(t, time.Since(begun), 5*time.Second)
	lines, _ := l.all()
	assert.Equal(t, []string{"a hook was killed but has not exited; not waiting any longer"}, lines)
	pid, err := strconv.Atoi(contents(t, path))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	h.Limit = time.Minute
	h.Wait(nil)
}
