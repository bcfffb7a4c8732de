package child

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passElsewhere passes a gate on another thread than the first, as the scheduler sometimes makes it.
func passElsewhere() {
	runtime.LockOSThread()
	go Pass(os.Args[2], os.Args[3:])
	select {}
}

// deathSignal says which signal this process gets when its parent ends.
func deathSignal() int {
	var number int32
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&number)), 0)
	return int(number)
}

// A program dies with the process that started it, whichever thread passed its gate: nobody else ends it if the watchdog
// is killed too.
func TestAProgramBehindAGateDiesWithItsParent(t *testing.T) {
	out := t.TempDir() + "/out"
	self, err := os.Executable()
	require.NoError(t, err)
	c, err := Start([]string{self, out}, append(os.Environ(), role+"=mortal"), watchedByNobody(t))
	require.NoError(t, err)
	<-c.Done()
	assert.Zero(t, c.Code())
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(int(syscall.SIGKILL)), string(text))
}

// watchedByNobody makes a child wait at a gate.
func watchedByNobody(t *testing.T) Option {
	_, orders, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = orders.Close() })
	return WatchedBy(&Watchdog{pipe: orders})
}

func tellDeathSignal() {
	if err := os.WriteFile(os.Args[1], fmt.Append(nil, deathSignal()), 0o600); err != nil {
		panic(err)
	}
}
