//go:build unix

package health

import (
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
)

// listen makes this process report to a socket of the test.
func listen(t *testing.T) *commandtest.Systemd {
	t.Helper()
	m := commandtest.NewSystemd(t, 30*time.Second)
	t.Setenv("NOTIFY_SOCKET", m.Socket)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", "")
	return m
}

func TestSystemdHearsOfEachState(t *testing.T) {
	m := listen(t)
	u := Notify(nil)
	u.Status("deactivating")
	m.Until("STATUS=deactivating")
	u.Status("deactivating")
	u.Ready()
	all := m.Until("READY=1")
	assert.NotContains(t, all, "STATUS=deactivating", "it has not changed")
	u.Status("on standby")
	m.Until("STATUS=on standby")
	u.Stopping()
	u.End()
	m.Until("STOPPING=1")
	for range 50 {
		last := Notify(nil)
		last.Stopping()
		last.End()
		m.Until("STOPPING=1") // although the end follows at once
	}
}

// The name of a holder, which any program can write, must not be an assignment of its own.
func TestAStatusIsOneLine(t *testing.T) {
	m := listen(t)
	u := Notify(nil)
	u.Status("held by a\nMAINPID=1\x1b[31m \xff")
	m.Until(`STATUS=held by a\nMAINPID=1\x1b[31m \xff`)
	u.End()
}

// systemd's watchdog is for a loop that hangs: pings come only from answers of the loop. A loop that answers is asked three times within
// the watchdog's limit, and not all the time, which would keep a processor busy.
func TestBetweenTwoPingsTheLoopIsLeftAlone(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	asks := make(chan struct{})
	u := Notify(asks)
	assert.Equal(t, 10*time.Millisecond, u.ping, "two pings may be late")
	u.Status("hangs")
	assert.NotContains(t, m.Until("STATUS=hangs"), "WATCHDOG=1")
	begun := time.Now()
	for range 5 {
		<-asks
		m.Until("WATCHDOG=1")
	}
	assert.GreaterOrEqual(t, time.Since(begun), 4*u.ping)
	u.Status("hangs again")
	assert.NotContains(t, m.Until("STATUS=hangs again"), "WATCHDOG=1")
	u.End()
}

// Whatever a process reports, and however fast: systemd hears the last word on everything, and each state once.
func TestTheLastWordReachesSystemd(t *testing.T) {
	m := listen(t)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		u := Notify(nil)
		last := map[string]string{}
		for range 1 + r.IntN(8) {
			switch status := strconv.Itoa(r.IntN(3)); r.IntN(4) {
			case 0:
				u.Ready()
				last["READY"] = "1"
			case 1:
				u.Stopping()
				last["STOPPING"] = "1"
			default:
				u.Status(status)
				last["STATUS"] = status
			}
			if r.IntN(2) == 0 {
				runtime.Gosched()
			}
		}
		u.End()
		_, err := daemon.SdNotify(false, "END=1")
		require.NoError(t, err)
		heard := map[string]string{}
		for _, line := range m.Until("END=1") {
			variable, value, _ := strings.Cut(line, "=")
			require.False(t, variable != "STATUS" && heard[variable] != "", "seed %d: %s again", seed, variable)
			heard[variable] = value
		}
		require.Equal(t, last, heard, "seed %d", seed)
	}
}

// What is reported while a report is sent does not take its place.
func TestALaterReportLeavesTheOneThatIsSent(t *testing.T) {
	m := listen(t)
	u := &Unit{wake: make(chan struct{}, 1), last: map[string]string{}}
	u.Status("active")
	u.Ready()
	sent := u.pending
	u.send()
	u.Status("deactivating")
	u.Stopping()
	assert.Equal(t, []string{"STATUS=active", "READY=1"}, sent)
	u.send()
	assert.Equal(t, []string{"STATUS=active", "READY=1", "STATUS=deactivating"}, m.Until("STOPPING=1"))
}

// The loop is asked for systemd's watchdog only, and only if that watches this process. Without systemd, nothing is reported.
func TestTheLoopIsAskedOnlyForAWatchdogOfThisProcess(t *testing.T) {
	for _, r := range []struct {
		usec, pid string
		asked     bool
	}{{"", "", false}, {"30000", "", true}, {"30000", strconv.Itoa(os.Getpid()), true}, {"30000", "1", false}} {
		m := listen(t)
		t.Setenv("WATCHDOG_USEC", r.usec)
		t.Setenv("WATCHDOG_PID", r.pid)
		asks := make(chan struct{}, 1)
		u := Notify(asks)
		if r.asked {
			m.Until("WATCHDOG=1")
		}
		for i := range 10 {
			u.Status(strconv.Itoa(i))
			m.Until("STATUS=" + strconv.Itoa(i))
		}
		u.End()
		assert.Equal(t, r.asked, len(asks) > 0, "%+v", r)
		assert.Equal(t, r.usec, os.Getenv("WATCHDOG_USEC"), "a watchdog of this process may need it too")
	}
	t.Setenv("NOTIFY_SOCKET", "")
	u := Notify(nil)
	assert.Nil(t, u)
	u.Ready()
	u.Status("on standby")
	u.Stopping()
	u.End()
}

// A systemd that does not read leaves its socket full. That must not hold up what decides about the lock, nor the end.
func TestASystemdThatDoesNotReadDelaysNobody(t *testing.T) {
	m := listen(t)
	full, err := net.Dial("unixgram", m.Socket)
	require.NoError(t, err)
	defer full.Close()
	for err == nil {
		require.NoError(t, full.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		_, err = full.Write([]byte("STATUS=full"))
	}
	u := Notify(nil)
	begun := time.Now()
	for i := range 10_000 {
		u.Status(strconv.Itoa(i))
	}
	u.End()
	assert.Less(t, time.Since(begun), 20*time.Second)
	synctest.Test(t, func(t *testing.T) {
		u := &Unit{quit: make(chan struct{}), done: make(chan struct{})} // still sends
		begun := time.Now()
		u.End()
		assert.Equal(t, time.Second, time.Since(begun), "a service manager may kill what does not exit")
	})
}
