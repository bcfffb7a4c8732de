package child

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pass passes a gate on another thread than the first, as the scheduler sometimes makes it.
func pass() {
	if os.Getenv(role) == "still" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour) // another thread may get the signal, and this one goes on until then
	}
	runtime.LockOSThread()
	go func() {
		Pass(os.Args[2:])
		os.Exit(CannotRun)
	}()
	select {}
}

// deathSignal says which signal this process gets when its parent ends.
func deathSignal() int {
	var number int32
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&number)), 0)
	return int(number)
}

// A program dies with the process that started it, whichever thread passed its gate: nothing else ends it if the watchdog
// is killed too.
func TestAProgramBehindAGateDiesWithItsParent(t *testing.T) {
	out := t.TempDir() + "/out"
	self, err := os.Executable()
	require.NoError(t, err)
	c, err := Start(Command{Args: []string{self, out}, Env: append(os.Environ(), role+"=mortal"), Dog: nobody(t, time.Hour).Watchdog})
	require.NoError(t, err)
	<-c.Done()
	assert.Zero(t, c.Code())
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(int(syscall.SIGKILL)), string(text))
}

// idle is a watchdog that does nothing but make a child wait at a gate.
type idle struct {
	*Watchdog
	lines *os.File // its orders
	first time.Time
}

func nobody(t *testing.T, left time.Duration) idle {
	lines, orders, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = lines.Close(); _ = orders.Close() })
	dog := idle{&Watchdog{pipe: orders}, lines, time.Now().Add(left)}
	dog.Allow(dog.first)
	return dog
}

// If this process was stopped before the gate was open, the lock is lost when it continues.
func TestAProgramWhoseTimeIsOverDoesNotBegin(t *testing.T) {
	out := t.TempDir() + "/out"
	c, err := Start(Command{Args: []string{"touch", out}, Dog: nobody(t, 0).Watchdog})
	require.NoError(t, err)
	<-c.Done()
	assert.NotZero(t, c.Code())
	assert.NoFileExists(t, out)
}

// A start can take longer than the lease, for example while the machine is busy. What counts then is whether the lock is
// still held when the program is to begin, and not what was known before.
func TestAProgramBeginsByTheDeadlineAtTheEndOfItsStart(t *testing.T) {
	for _, held := range []bool{true, false} {
		out := t.TempDir() + "/out"
		asked := 0
		until := func() time.Time {
			if asked++; (asked == 1) == held {
				return time.Now()
			}
			return inAnHour()
		}
		c, err := Start(Command{Args: []string{"touch", out}, Watch: watchers(t.TempDir() + "/acted"), Until: until})
		require.NoError(t, err)
		<-c.Done()
		assert.Equal(t, held, c.Code() == 0)
		if _, err := os.Stat(out); held {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, os.ErrNotExist)
		}
	}
}

// If this process was stopped while it opened the gate, what it wrote is read too late. The time at which it is read counts, and
// not the time at which the wait behind the gate began: the lock may be another's by then.
func TestAGateThatIsOpenedLateLetsNothingPass(t *testing.T) {
	out := t.TempDir() + "/out"
	touch, err := exec.LookPath("touch")
	require.NoError(t, err)
	for left, begins := range map[time.Duration]bool{time.Hour: true, 0: false, -time.Millisecond: false} {
		for _, waits := range []bool{false, true} { // whether it already waits when the gate is opened
			c := exec.Command(touch, out)
			g, err := putBehind(c)
			require.NoError(t, err)
			require.NoError(t, c.Start())
			g.started()
			if waits {
				_, err = g.let.WriteString(" ") // the wait has begun once this is read
				require.NoError(t, err)
				require.Eventually(t, func() bool { return unread(t, g.let) == 0 }, 10*time.Second, time.Millisecond)
			}
			_, err = fmt.Fprintln(g.let, time.Now().Add(left).UnixNano())
			require.NoError(t, err)
			assert.Equal(t, begins, c.Wait() == nil, "%v, waits: %v", left, waits)
			g.close()
			if begins {
				require.NoError(t, os.Remove(out))
			}
		}
	}
	assert.NoFileExists(t, out)
}

// unread returns how many bytes of a pipe have not been read.
func unread(t *testing.T, pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
	require.NoError(t, err)
	return n
}

// A process that is stopped behind its gate must not keep this one waiting for longer than the lock is held.
func TestNobodyWaitsForAProcessThatStandsStillBehindItsGate(t *testing.T) {
	c, err := Start(Command{Args: []string{"true"}, Env: append(os.Environ(), role+"=still"), Dog: nobody(t, 100*time.Millisecond).Watchdog})
	require.NoError(t, err)
	ends(t, c)
	assert.Equal(t, 128+int(syscall.SIGKILL), c.Code())
}

// A program ignores SIGTTOU if whoever started exec ignored it, but not because exec has to ignore it at a terminal: without the
// signal, a program in the background would write over what is in the foreground.
func TestAProgramIgnoresTheTerminalsSignalOnlyIfItWouldWithoutExec(t *testing.T) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	defer func() { programsGetTTOU = false }()
	for _, programsGetTTOU = range []bool{false, true} {
		out := t.TempDir() + "/out"
		c, err := Start(Command{Args: []string{"sh", "-c", "while read name mask; do [ $name != SigIgn: ] || echo $mask; done </proc/$$/status >" + out}, Env: os.Environ(), Apart: true, Dog: nobody(t, time.Hour).Watchdog})
		require.NoError(t, err)
		<-c.Done()
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		mask, err := strconv.ParseUint(strings.TrimSpace(string(text)), 16, 64)
		require.NoError(t, err)
		assert.Equal(t, !programsGetTTOU, mask>>(syscall.SIGTTOU-1)&1 == 1)
	}
}

func tellDeathSignal() {
	if err := os.WriteFile(os.Args[1], fmt.Append(nil, deathSignal()), 0o600); err != nil {
		panic(err)
	}
}
