//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"github.com/stretchr/testify/require"
)

// A tty is a terminal with a program in front of it, and what is on its screen.
type tty struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	screen vt10x.Terminal
	ended  chan struct{}

	mu      sync.Mutex
	raw     strings.Builder
	changed chan struct{} // closed at the next change of the screen
}

// atTerminal starts a program at a terminal of its own. It is gone at the end of the test.
func atTerminal(t *testing.T, width, height int, env []string, name string, args ...string) *tty {
	t.Helper()
	x := &tty{t: t, cmd: exec.Command(name, args...), screen: vt10x.New(vt10x.WithSize(width, height)), ended: make(chan struct{}), changed: make(chan struct{})}
	x.cmd.Env = append(append(os.Environ(), "TERM=xterm-256color"), env...)
	var err error
	x.master, err = pty.StartWithSize(x.cmd, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)})
	require.NoError(t, err)
	go x.read()
	t.Cleanup(func() {
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
		_ = x.master.Close()
		<-x.ended
		if t.Failed() {
			t.Logf("the screen at the end:\n%s", x.text())
		}
	})
	return x
}

func (x *tty) read() {
	buf := make([]byte, 1<<16)
	for {
		n, err := x.master.Read(buf)
		x.mu.Lock()
		x.raw.Write(buf[:n])
		_, _ = x.screen.Write(buf[:n])
		close(x.changed)
		x.changed = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = x.cmd.Wait()
	close(x.ended)
}

// text is the screen, a line for each of its lines.
func (x *tty) text() string {
	lines := strings.Split(x.screen.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// shows waits until the screen matches, and returns it.
func (x *tty) shows(expression string) string {
	x.t.Helper()
	re := regexp.MustCompile("(?m)" + expression)
	late := time.After(patience)
	for {
		x.mu.Lock()
		changed, text := x.changed, x.text()
		x.mu.Unlock()
		if re.MatchString(text) {
			return text
		}
		select {
		case <-changed:
		case <-late:
			x.t.Fatalf("the screen does not show %s", expression)
		}
	}
}

// press presses keys.
func (x *tty) press(keys string) {
	x.t.Helper()
	_, err := io.WriteString(x.master, keys)
	require.NoError(x.t, err)
}

// pressed presses keys, and waits for what they bring.
func (x *tty) pressed(keys, expression string) string {
	x.t.Helper()
	x.press(keys)
	return x.shows(expression)
}

func (x *tty) resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.screen.Resize(width, height)
	x.mu.Unlock()
	require.NoError(x.t, pty.Setsize(x.master, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}))
}

// code waits for the end of the program, and returns its exit code.
func (x *tty) code() int {
	x.t.Helper()
	select {
	case <-x.ended:
	case <-time.After(patience):
		x.t.Fatalf("%v does not end", x.cmd.Args)
	}
	return x.cmd.ProcessState.ExitCode()
}

// written is all that the program has written, with its escape sequences.
func (x *tty) written() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}
