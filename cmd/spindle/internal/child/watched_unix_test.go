//go:build unix

package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests in this file run on every Unix. On systems other than Linux, only the watchdog ends a program whose parent has
// died, and whether a group is gone is known without the states of its processes.

// watching is the first argument of a watchdog of these tests. What follows is a file, in which it writes that it acts.
const watching = "watching"

func watchFor(file string) {
	Watch(func(a Act) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(int(a.Why))), 0o600); err != nil {
			panic(err)
		}
	})
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// parentOf is set in a process that runs a program, to the file in which the program's watchdog writes that it acts.
const parentOf = "SPINDLE_TEST_PARENT_OF"

func init() {
	acted, isParent := os.LookupEnv(parentOf)
	if !isParent {
		return
	}
	_ = os.Unsetenv(parentOf) // the watchdog and the program are not parents
	if err := runProgram(acted); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runProgram runs a program that ignores polite signals. It ends the program's time with the first line of its input.
func runProgram(acted string) error {
	const program = `trap '' TERM HUP INT; echo $$; while :; do sleep 1; done`
	c, err := Start([]string{"sh", "-c", program}, os.Environ(), Watched(inAnHour, os.Environ(), watching, acted))
	if err != nil {
		return err
	}
	go func() {
		if bufio.NewScanner(os.Stdin).Scan() {
			c.Allow(time.Now().Add(50 * time.Millisecond))
		}
	}()
	<-c.Done()
	fmt.Println("exit code", c.Code())
	return nil
}

// watchedRun is a parent in a process of its own, its program, and the program's watchdog.
type watchedRun struct {
	parent *exec.Cmd
	orders *os.File
	output *bufio.Scanner // of all three of them
	group  int            // the program's
	acted  string
}

func newWatchedRun(t *testing.T) *watchedRun {
	self, err := os.Executable()
	require.NoError(t, err)
	f := &watchedRun{parent: exec.Command(self), acted: t.TempDir() + "/acted"}
	f.parent.Env = append(os.Environ(), parentOf+"="+f.acted)
	stdin, orders, err := os.Pipe()
	require.NoError(t, err)
	output, stdout, err := os.Pipe()
	require.NoError(t, err)
	f.parent.Stdin, f.parent.Stdout, f.orders = stdin, stdout, orders
	require.NoError(t, f.parent.Start())
	require.NoError(t, stdin.Close())
	require.NoError(t, stdout.Close())
	require.NoError(t, output.SetReadDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() {
		_ = f.parent.Process.Kill()
		_ = f.parent.Wait()
		_, _ = orders.Close(), output.Close()
	})
	f.output = bufio.NewScanner(output)
	f.group, err = strconv.Atoi(f.line())
	require.NoError(t, err)
	t.Cleanup(func() { killGroup(f.group) })
	return f
}

// line returns the next line, or "" once all of them have exited.
func (f *watchedRun) line() string {
	f.output.Scan()
	return f.output.Text()
}

// If the parent is killed, its program is killed, too, and the watchdog then acts and exits.
func TestAWatchdogEndsTheProgramOfADeadParent(t *testing.T) {
	f := newWatchedRun(t)
	require.False(t, groupGone(f.group))
	require.NoError(t, f.parent.Process.Kill())
	assert.Empty(t, f.line())
	require.NoError(t, f.output.Err(), "some of them go on")
	assert.Eventually(t, func() bool { return groupGone(f.group) }, 10*time.Second, 10*time.Millisecond, "init has not reaped them")
	text, err := os.ReadFile(f.acted)
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(int(Dead)), string(text))
}

// A program is killed at its deadline, although its parent lives and does nothing.
func TestAWatchdogEndsAProgramAtItsDeadline(t *testing.T) {
	f := newWatchedRun(t)
	_, err := f.orders.WriteString("late\n")
	require.NoError(t, err)
	assert.Equal(t, "exit code 137", f.line())
	require.NoError(t, f.output.Err())
}
