package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

const role = "SPINDLE_TEST_ROLE"

func init() {
	if role := os.Getenv(role); role == "headless" || role == "mortal" {
		runtime.LockOSThread() // main is to run on the first thread
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(role) == "elsewhere" { // in a pid namespace of its own, with the /proc of another
		adopts.Store(true)
		killed, left := endOrphans(1 << 22)
		fmt.Printf("%q %v %d %d", born(os.Getpid()), onlyZombies(1<<22), killed, left)
		os.Exit(0)
	}
	if os.Getenv(role) == "init" {
		if err := asInit(os.Getenv("DIR")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(role) == "headless" { // its first thread ends, and the others do not
		os.Stdout.WriteString("ready\n")
		go func() { time.Sleep(time.Hour) }()
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	if len(os.Args) > 1 && os.Args[1] == Behind {
		pass()
	}
	if len(os.Args) > 2 && os.Args[1] == watching {
		watchFor(os.Args[2])
		os.Exit(0)
	}
	if os.Getenv(role) == "mortal" {
		tellDeathSignal()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func inGroup(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

func TestAGroupIsGoneOnceNothingRunsInIt(t *testing.T) {
	group := inGroup(t, exec.Command("sh", "-c", "sleep 1000 & sleep 1000"))
	assert.False(t, groupGone(group))
	signalGroup(group, syscall.SIGKILL)
	require.Eventually(t, func() bool { return groupGone(group) }, 10*time.Second, time.Millisecond, "nobody waits for its first process")
	assert.NotEmpty(t, born(group), "it is a zombie")
}

// inRole returns a command that runs this binary in a role.
func inRole(t *testing.T, as string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(append(os.Environ(), role+"="+as), env...)
	return c
}

// headless starts a process in its own group whose first thread has ended, so that it looks like a zombie.
func headless(t *testing.T) (pid int) {
	c := inRole(t, "headless")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	pid = inGroup(t, c)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
	return pid
}

func sleeper(t *testing.T) (pid int) { return inGroup(t, exec.Command("sleep", "1000")) }

func TestAProcessWithoutItsFirstThreadIsNotGone(t *testing.T) {
	pid := headless(t)
	assert.False(t, groupGone(pid))
	signalGroup(pid, syscall.SIGKILL)
	require.Eventually(t, func() bool { return groupGone(pid) }, 10*time.Second, time.Millisecond)
}

// In the /proc of another pid namespace a process id names another process: a program would be taken for a stranger, and
// not be killed, or for gone. And the children of the other namespace's first process would be taken for orphans.
func TestNothingIsKnownFromTheProcOfAnotherNamespace(t *testing.T) {
	assert.Equal(t, `"" false 0 0`, inNamespaces(t, "elsewhere", syscall.CLONE_NEWPID))
	assert.NotEmpty(t, born(os.Getpid()))
}

// inNamespaces runs this binary in a role, in namespaces of its own, and returns what it prints.
func inNamespaces(t *testing.T, as string, kinds uintptr, env ...string) string {
	t.Helper()
	return commandtest.InNamespaces(t, inRole(t, as, env...), kinds)
}

// A guard asks for its lock file ten times a second until it gets it, and keeps no file of an attempt that failed.
func TestAnAttemptToTakeALockFileLeavesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close it, sooner or later
	testcheck.NothingLeft(t, func() {
		held, err := NewLockFile(path)
		require.NoError(t, err)
		for range 10 {
			_, err = NewLockFile(path)
			assert.ErrorIs(t, err, ErrBusy)
		}
		held.End()
	})
}
