//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A shell is an interactive bash at a terminal of its own, in which somebody types.
type shell struct {
	t     *testing.T
	tty   *os.File // the other side
	bash  *exec.Cmd
	dir   string
	mu    sync.Mutex
	out   strings.Builder
	moved chan struct{} // there is more
	ended chan struct{}
	read  int // how much of it was looked at
}

func newShell(t *testing.T) *shell {
	e, path := newDatabase(t)

	s := &shell{t: t, dir: t.TempDir(), moved: make(chan struct{}, 1), ended: make(chan struct{})}
	s.bash = exec.Command("bash", "--norc", "--noprofile", "-i")
	s.bash.Dir = s.dir
	s.bash.Env = append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+e.Addr(), "SPINDLE_NAME=job", "SHELL_OF="+path, "PS1=ready> ", "TERM=dumb", "HISTFILE=", "BASH_SILENCE_DEPRECATION_WARNING=1")
	tty, err := pty.StartWithSize(s.bash, &pty.Winsize{Rows: 24, Cols: 80})
	require.NoError(t, err)
	// If another test's process had this side, too, closing it would not hang up the terminal.
	fd, err := unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, tty.Close())
	require.NoError(t, syscall.SetNonblock(fd, true)) // or Close would wait for a read
	s.tty = os.NewFile(uintptr(fd), "terminal")
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(s, s.tty)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			s.mu.Lock()
			t.Logf("the terminal: %q", s.out.String())
			s.mu.Unlock()
			abort("SHELL_OF=" + path)
		}
		s.close()
	})
	s.sees(`ready> $`)
	return s
}

func (s *shell) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return s.out.Write(b)
}

// close takes the terminal away, and waits until bash has ended.
func (s *shell) close() {
	_ = s.tty.Close()
	_ = s.bash.Wait()
	<-s.ended
}

// types types what it is given, as it is: "\x03" is Ctrl-C, "\x1a" Ctrl-Z, "\x04" Ctrl-D.
func (s *shell) types(keys string) {
	_, err := io.WriteString(s.tty, keys)
	require.NoError(s.t, err)
}

// sees waits until what is printed next matches, and returns the match. Lines end with \r\n at a terminal.
func (s *shell) sees(expression string) string {
	s.t.Helper()
	re := regexp.MustCompile("(?m)" + strings.ReplaceAll(expression, "$", `\r?$`))
	limit := time.After(patience)
	for {
		s.mu.Lock()
		rest := s.out.String()[s.read:]
		at := re.FindStringIndex(rest)
		if at != nil {
			s.read += at[1]
		}
		s.mu.Unlock()
		if at != nil {
			return rest[at[0]:at[1]]
		}
		select {
		case <-s.moved:
		case <-limit:
			require.FailNow(s.t, "the terminal does not show it", "%q is not in %q", expression, rest)
		}
	}
}

// typesUntil types something again and again until what is printed matches.
func (s *shell) typesUntil(keys, expression string) {
	s.t.Helper()
	re := regexp.MustCompile("(?m)" + strings.ReplaceAll(expression, "$", `\r?$`))
	require.Eventually(s.t, func() bool {
		s.types(keys)
		time.Sleep(100 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		at := re.FindStringIndex(s.out.String()[s.read:])
		if at != nil {
			s.read += at[1]
		}
		return at != nil
	}, patience, 200*time.Millisecond, expression)
}

// code is the exit code of what ran last.
func (s *shell) code() string {
	s.types("echo code=$?.\r")
	return strings.TrimSuffix(strings.TrimPrefix(s.sees(`code=\d+\.`), "code="), ".")
}

// script writes a program, and returns a command for it.
func (s *shell) script(name, text string) string {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	return "./" + name
}

// file waits for a file, and returns what is in it.
func (s *shell) file(name string) string {
	s.t.Helper()
	var text []byte
	require.Eventually(s.t, func() bool {
		text, _ = os.ReadFile(filepath.Join(s.dir, name))
		return len(text) > 0
	}, patience, 10*time.Millisecond, name)
	return strings.TrimSpace(string(text))
}

func (s *shell) pid(name string) int {
	var n int
	_, err := fmt.Sscan(s.file(name), &n)
	require.NoError(s.t, err)
	return n
}

// size returns the size of a file.
func (s *shell) size(name string) int64 {
	f, err := os.Stat(filepath.Join(s.dir, name))
	if err != nil {
		return 0
	}
	return f.Size()
}

// beating is a program that forks nothing: a shell that forks just when Ctrl-Z comes is not stopped, with or without exec.
const beating = `exec perl -e 'open B, ">>", "beats"; for (B->autoflush;; select undef, undef, undef, 0.01) { print B "beat\n" }'`

func atATerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
}

// What reads from the terminal, and what asks for it, works as without exec.
func TestAProgramUnderExecHasTheTerminal(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	s.types("spindle exec -- cat\r")
	s.sees(`holding job`)
	s.types("hello\r")
	s.sees(`^hello$`) // typed
	s.sees(`^hello$`) // printed by cat
	s.types("\x04")
	s.sees(`ready> $`)
	assert.Equal(t, "0", s.code())

	s.types("spindle exec -- cat\r")
	s.sees(`holding job`)
	s.types("again\r")
	s.sees(`^again$`)
	s.sees(`^again$`)
	s.types("\x03")
	s.sees(`ready> $`)
	assert.Equal(t, "130", s.code())

	s.types("PS1='inner> ' spindle exec -q -- bash --norc --noprofile\r")
	s.sees(`inner> $`)
	s.types("sh -c 'echo sleeping; exec sleep 1000'\r")
	s.sees(`^sleeping$`) // bash itself would ignore Ctrl-C
	s.types("\x03")
	s.sees(`inner> $`)
	s.types("exit 7\r")
	s.sees(`ready> $`)
	assert.Equal(t, "7", s.code())
	s.types("stty -a | grep -o ' echo '; spindle status job -o json\r")
	s.sees(`^ echo $`)
	s.sees(`"state":"released"`)
}

// An operator may take longer than --timeout, which is about the database, to answer whether a lock is to be released.
func TestAnOperatorHasTimeToConfirmARelease(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	const timeout = 5 * time.Second
	s.types("spindle exec -- sleep 1000 &\r")
	token := strings.TrimPrefix(s.sees(`token \d+`), "token ")
	began := time.Now()
	s.types(fmt.Sprintf("spindle release job --token %s --timeout %v\r", token, timeout))
	s.sees(`Release job\? \[y/N\] `)
	time.Sleep(timeout - time.Since(began) + timeout/5)
	s.types("y\r")
	require.Equal(t, "0", s.code())
	// Not %1: bash forgets the number of a job once it has said that the job has ended.
	s.types("wait $!; echo exec=$?.\r")
	assert.Equal(t, "exec=76.", s.sees(`^exec=\d+\.`), "the holder has lost it")
}

// The rest of a pipeline has the terminal as long as the program does not ask for it.
func TestAPipelineSharesTheTerminalWithAProgramUnderExec(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	reader := s.script("reader", `cat >all; echo "$(wc -l <all) lines. Go on?"; read answer </dev/tty; echo "answer: $answer"`)
	s.types("spindle exec -q -- seq 1000 | " + reader + "\r")
	s.sees(`1000 lines. Go on\?$`)
	s.types("yes\r")
	s.sees(`answer: yes$`)
	s.sees(`ready> $`)
}

// Ctrl-Z stops the program and exec, bg and fg continue both, and Ctrl-C ends both, whether the program reads from the
// terminal or not.
func TestAProgramUnderExecIsAJobOfTheShell(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	s.types("spindle exec --lease 1h -- " + s.script("beat", beating) + "\r")
	s.sees(`holding job, token \d+$`)
	beats := func() {
		t.Helper()
		n := s.size("beats")
		require.Eventually(t, func() bool { return s.size("beats") > n+50 }, patience, 10*time.Millisecond, "it does not go on")
	}
	beats()
	s.types("\x1a")
	s.sees(`is stopped; if it does not continue within [0-9m.]+s, job will be lost and the program killed$`)
	s.sees(`ready> $`)
	n := s.size("beats")
	time.Sleep(300 * time.Millisecond)
	assert.Equal(t, n, s.size("beats"), "the program is stopped, too")
	s.types("jobs\r")
	s.sees(`Stopped .*beat$`)
	s.types("bg\r")
	beats()
	s.types("fg\r")
	s.sees(`exec .*beat$`)
	beats()
	s.types("\x1a")
	s.sees(`is stopped`)
	s.sees(`ready> $`)
	s.types("fg\r")
	s.sees(`exec .*beat$`)
	beats()
	s.types("\x03")
	s.sees(`released job$`)
	s.sees(`ready> $`)
	assert.Equal(t, "130", s.code())

	s.types("spindle exec --lease 1h -- " + s.script("reader", "echo $$ >reader.pid; exec cat") + "\r")
	s.sees(`holding job`)
	reader := s.pid("reader.pid")
	s.types("one\r")
	s.sees(`^one$`)
	s.sees(`^one$`)
	s.types("\x1a")
	s.sees(`is stopped`)
	s.sees(`ready> $`)
	s.types("bg\r") // it reads from the terminal, so it is stopped again
	s.sees(`is stopped`)
	s.typesUntil("jobs\r", `Stopped .*reader$`)
	s.types("fg\r")
	s.sees(`reader$`)
	require.Eventually(t, func() bool { return state(reader) == "S" }, patience, 10*time.Millisecond) // the terminal is as it needs it
	s.types("two\r")
	s.sees(`^two$`)
	s.sees(`^two$`)
	s.types("\x03")
	s.sees(`ready> $`)
	assert.Equal(t, "130", s.code())
}

// A shell that took the terminal from a stopped exec keeps it when the program ends: a shell that loses its terminal exits.
func TestExecTakesNoTerminalFromAShell(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	s.types("spindle exec --lease 1h -- " + s.script("asks", "stty -echo </dev/tty; stty echo </dev/tty; echo $PPID >exec; echo $$ >pid; exec sleep 1000") + "\r")
	spindle, pid := s.pid("exec"), s.pid("pid")
	require.NoError(t, syscall.Kill(spindle, syscall.SIGSTOP))
	s.sees(`ready> $`)
	s.types("bg\r")
	s.sees(`ready> $`)
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	s.sees(`released job`)
	require.Eventually(t, func() bool { return !alive(spindle) }, patience, 10*time.Millisecond)
	s.types("echo still $((40+2))\r")
	s.sees(`^still 42$`)
}

// When the terminal is gone, so are the program and exec, and the lock is released.
func TestNothingIsLeftWhenTheTerminalIsGone(t *testing.T) {
	atATerminal(t)
	for _, program := range []string{"cat", "read line", "while :; do sleep 0.01; done"} {
		s := newShell(t)
		s.types("spindle exec --lease 1h -- " + s.script("program", "echo $$ >pid; echo $PPID >exec; "+program) + "\r")
		pid, spindle := s.pid("pid"), s.pid("exec")
		s.close()
		require.Eventually(t, func() bool { return !alive(pid) && !alive(spindle) }, patience, 10*time.Millisecond, program)
		status := exec.Command("spindle", "status", "job", "-o", "json")
		status.Env = s.bash.Env
		out, _ := status.Output()
		assert.Contains(t, string(out), `"state":"released"`, program)
	}
}

// state is what ps says of a process: T for one that is stopped.
func state(pid int) string {
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return string(out[:min(1, len(out))])
}
