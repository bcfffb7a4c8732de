//go:build unix

package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(runCommand)
	subprocess.Heed()
	os.Exit(m.Run())
}

// runCommand is a command that runs until a signal arrives, or, with the order "end", until its caller ends it.
func runCommand(args []string, orders <-chan string) error {
	if args[1] == "nohup" {
		signal.Ignore(syscall.SIGHUP)
	}
	parent, end := context.WithCancel(context.Background())
	defer end()
	var ctx context.Context
	var stop context.CancelFunc
	switch args[0] {
	case "outlive":
		return outlive()
	case "ended":
		ctx, stop = UntilEnded(parent)
	case "interrupted":
		ctx, stop = UntilInterrupted(parent)
	}
	defer stop()
	fmt.Println("ready")
	done := ctx.Done()
	for {
		select {
		case <-done:
			done = nil
			fmt.Println("over")
		case order := <-orders:
			if order == "end" {
				end()
			}
			fmt.Println(order, signal.Ignored(syscall.SIGHUP))
		}
	}
}

// outlive writes to a pipe that nobody reads, and starts a program that gets SIGPIPE.
func outlive() error {
	OutliveReaders()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_ = r.Close()
	if err := unix.Dup2(int(w.Fd()), 1); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("x"); !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the pipe has a reader: %w", err)
	}
	var dead *exec.ExitError
	if err := exec.Command("sh", "-c", "kill -PIPE $$; exit 7").Run(); !errors.As(err, &dead) || dead.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
		return fmt.Errorf("the program ignores SIGPIPE: %w", err)
	}
	return nil
}

// command is a running runCommand.
type command struct {
	*subprocess.Child
	t     *testing.T
	lines chan string
	err   error // how it has ended, once Done is closed
}

func start(t *testing.T, args ...string) *command {
	c := &command{t: t, lines: make(chan string, 100)}
	var err error
	c.Child, err = subprocess.Command{Args: args, Line: func(line string) { c.lines <- line }, Ended: func(err error) { c.err = err }}.Start()
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	return c
}

func (c *command) next() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(patience):
		require.FailNow(c.t, "it says nothing")
		return ""
	}
}

func (c *command) says(line string) {
	c.t.Helper()
	require.Equal(c.t, line, c.next())
}

func (c *command) gets(signals ...syscall.Signal) {
	c.t.Helper()
	for _, s := range signals {
		require.NoError(c.t, c.Signal(s))
	}
}

// died reports whether the command has died of the signal, within a time.
func (c *command) died(s syscall.Signal, within time.Duration) bool {
	c.t.Helper()
	select {
	case <-c.Done():
		var dead *exec.ExitError
		require.ErrorAs(c.t, c.err, &dead)
		require.Equal(c.t, s, dead.Sys().(syscall.WaitStatus).Signal())
		return true
	case <-time.After(within):
		return false
	}
}

const patience = 30 * time.Second

// diesOf sends a signal until the command has died of it.
func (c *command) diesOf(s syscall.Signal) {
	c.t.Helper()
	for limit := time.Now().Add(patience); !c.died(s, 10*time.Millisecond); {
		_ = c.Signal(s)
		require.True(c.t, time.Now().Before(limit), "it is still there")
	}
}

// A command that holds a lock ends in an orderly way at the first signal, and at once at the second: somebody who presses
// Ctrl-C twice does not want to wait. When its terminal closes, it can get SIGHUP several times, and still releases its lock.
// Under nohup, it stays.
func TestASignalEndsACommandAndASecondOneKillsIt(t *testing.T) {
	for _, name := range []string{"ended", "interrupted"} {
		for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
				c := start(t, name, "")
				c.says("ready")
				c.gets(first)
				c.says("over")
				if name == "interrupted" { // a second signal kills it a moment after the first one has ended it
					c.diesOf(second)
					continue
				}
				c.gets(second)
				require.True(t, c.died(second, patience))
			}
		}
		c := start(t, name, "")
		c.says("ready")
		require.NoError(t, c.Send("end"))
		seen := map[string]bool{c.next(): true, c.next(): true}
		assert.Equal(t, map[string]bool{"over": true, "end false": true}, seen, "its caller ends it")
	}
	c := start(t, "ended", "")
	c.says("ready")
	c.gets(syscall.SIGHUP)
	c.says("over")
	c.gets(syscall.SIGHUP, syscall.SIGHUP, syscall.SIGHUP)
	require.NoError(t, c.Send("still there"))
	c.says("still there false")
	c.diesOf(syscall.SIGTERM)

	c = start(t, "ended", "nohup")
	c.says("ready")
	c.gets(syscall.SIGHUP)
	require.NoError(t, c.Send("still there"))
	c.says("still there true")
	c.gets(syscall.SIGTERM)
	c.says("over")
	c.diesOf(syscall.SIGTERM)

	c = start(t, "interrupted", "")
	c.says("ready")
	c.diesOf(syscall.SIGHUP)
}

// A command that has to go on does so when nobody reads its output any more, but the programs that it starts are not made to
// ignore that.
func TestACommandOutlivesItsReaders(t *testing.T) {
	var said strings.Builder
	done := make(chan error, 1)
	c, err := subprocess.Command{Args: []string{"outlive", ""}, Line: func(string) {}, Stderr: &said, Ended: func(err error) { done <- err }}.Start()
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	assert.NoError(t, <-done, said.String())
}

// Each error has its exit code, and the message contains only the error.
func TestAnExitHasACodeAndPerhapsAMessage(t *testing.T) {
	cause := errors.New("no such lock")
	err := fmt.Errorf("status: %w", &Exit{StatusFree, cause})
	var e *Exit
	require.ErrorAs(t, err, &e)
	assert.Equal(t, StatusFree, e.Code)
	assert.ErrorIs(t, err, cause)
	assert.EqualError(t, err, "status: no such lock")
	assert.EqualError(t, &Exit{Code: 4}, "exit code 4")
	assert.NoError(t, errors.Unwrap(&Exit{Code: 4}))
	require.ErrorAs(t, Misuse("give %q: %w", "x", cause), &e)
	assert.Equal(t, Misused, e.Code)
	assert.EqualError(t, e, `give "x": no such lock`)
	assert.ErrorIs(t, e, cause)
}
