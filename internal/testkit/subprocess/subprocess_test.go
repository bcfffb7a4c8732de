//go:build unix

package subprocess

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	Main(role)
	os.Exit(m.Run())
}

// role selects the behavior of a child in these tests.
func role(args []string, orders <-chan string) error {
	switch args[0] {
	case "echo":
		fmt.Println(os.Getenv("SPINDLE_TEST_WORD"))
		for order := range orders {
			fmt.Println(order)
		}
	case "fail":
		return errors.New("it is meant to fail")
	case "parent": // starts a child, prints its process id, and leaves it behind
		c, err := Command{Args: []string{"echo"}, Line: func(string) {}}.Start()
		if err != nil {
			return err
		}
		if err := c.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if _, err := syscall.Wait4(c.Pid(), nil, syscall.WUNTRACED, nil); err != nil { // wait until it is stopped
			return err
		}
		fmt.Println(c.Pid())
		<-orders
	}
	return nil
}

func start(t *testing.T, c Command) (*Child, <-chan string) {
	t.Helper()
	lines := make(chan string, 10)
	c.Line = func(line string) { lines <- line }
	child, err := c.Start()
	require.NoError(t, err)
	t.Cleanup(child.Kill)
	return child, lines
}

func receive(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(time.Minute):
		require.FailNow(t, "the child says nothing")
		return ""
	}
}

func TestAChildIsToldLinesAndSaysLines(t *testing.T) {
	child, lines := start(t, Command{Args: []string{"echo"}, Env: []string{"SPINDLE_TEST_WORD=hello"}})
	assert.Equal(t, "hello", receive(t, lines))
	require.NoError(t, child.Send("again"))
	assert.Equal(t, "again", receive(t, lines))
}

func TestItIsKnownHowAChildEnded(t *testing.T) {
	var said bytes.Buffer
	var failure error
	child, _ := start(t, Command{Args: []string{"fail"}, Stderr: &said, Ended: func(err error) { failure = err }})
	<-child.Done()
	var exit *exec.ExitError
	require.ErrorAs(t, failure, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Equal(t, "it is meant to fail\n", said.String())

	child, lines := start(t, Command{Args: []string{"echo"}, Ended: func(err error) { failure = err }})
	receive(t, lines)
	child.Kill()
	require.ErrorAs(t, failure, &exit)
	assert.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

// A stopped process is not woken by the end of its input or by any other event except a hang-up of its process group.
func TestAStoppedChildEndsWithItsParent(t *testing.T) {
	parent, lines := start(t, Command{Args: []string{"parent"}})
	var orphan int
	_, err := fmt.Sscan(receive(t, lines), &orphan)
	require.NoError(t, err)
	parent.Kill()
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(orphan, 0), syscall.ESRCH) }, time.Minute, time.Millisecond)
}
