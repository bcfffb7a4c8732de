package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A watchdog releases exec's lock if exec has exited, and only once the program has exited too: otherwise, two programs would run. If
// exec is only late, it may continue, and release the lock itself. Here, there is no database, so that the release fails.
func TestAWatchdogReleasesTheLockOnceExecAndItsProgramAreGone(t *testing.T) {
	const lease = time.Second / 10 // it looks for processes again and again, which takes real time
	for _, why := range []child.Reason{child.Told, child.Dead, child.Late} {
		for _, gone := range []time.Duration{0, lease / 2, 2 * lease} {
			synctest.Test(t, func(t *testing.T) {
				x := &execution{reports: reportsOn(&memstore.Store{}, "job", "me", lease), lease: lease}
				x.Path = ""
				began, took := time.Now(), time.Duration(0)
				said := commandtest.Complaints(func() {
					x.watchdogAction(child.Act{Why: why, Gone: func() bool { return time.Since(began) >= gone }})
					took = time.Since(began)
				})
				releases := why == child.Dead && gone < lease
				assert.Equal(t, releases, strings.Contains(fmt.Sprint(said), "job is left to expire"), "why=%d, gone after %v: %q", why, gone, said)
				switch {
				case releases:
					assert.GreaterOrEqual(t, took, gone)
				case why == child.Late: // otherwise, nothing would say why the program died
					assert.Contains(t, fmt.Sprint(said), "job: exec missed its deadline, so its watchdog ended the program")
				default:
					assert.Empty(t, said)
				}
			})
		}
	}
}

// What has left the program's group may start others while the watchdog looks for it. The watchdog ends these, too, even if exec is only
// stopped, and gives it no other order.
func TestAWatchdogEndsWhatIsStartedWhileItLooks(t *testing.T) {
	for _, why := range []child.Reason{child.Told, child.Late} {
		x := &execution{reports: reportsOn(&memstore.Store{}, t.TempDir(), "me", time.Minute), lease: time.Minute}
		marks := []string{lockVariable + "=" + x.name, tokenVariable + "=" + x.token.String()}
		starts := exec.Command("setsid", "sh", "-c", "while :; do sleep 1000 & done")
		starts.Env = append(os.Environ(), marks...)
		require.NoError(t, starts.Start())
		time.Sleep(50 * time.Millisecond) // it starts hundreds in a second
		_ = commandtest.Complaints(func() { x.watchdogAction(child.Act{Why: why, Gone: func() bool { return false }}) })
		assert.Error(t, starts.Wait())
		assert.False(t, child.KillMarked("NONE", marks...), "why=%d: something goes on", why)
	}
}

// A watchdog deactivates the service until an attempt succeeds, whatever happened to guard. Guard gets each error. If it can't, the
// watchdog logs the errors itself, and runs the hook once, with the token of guard's last term.
func TestAWatchdogDeactivatesUntilAnAttemptSucceeds(t *testing.T) {
	for _, why := range []child.Reason{child.Told, child.Dead, child.Late} {
		for _, fails := range []int{0, 3} {
			dir := t.TempDir()
			g := guardWith(func(g *guarding) {
				g.deactivate = fmt.Sprintf("echo >>%[1]s/tries; [ $(wc -l <%[1]s/tries) -gt %[2]d ]", dir, fails)
				g.renew, g.confirm, g.state.last = time.Millisecond, 60_000, 7
			})
			g.hooks = hooks{Commands: [...]string{onStuck: `echo $SPINDLE_TOKEN "$SPINDLE_REASON" >>` + dir + "/stuck"}, Limit: time.Minute, Warn: t.Errorf}
			reports := 0
			said := commandtest.Complaints(func() {
				g.watchdogAction(child.Act{Why: why, Report: func(error) bool { reports++; return why == child.Told }})
				g.hooks.Wait(nil)
			})
			tries, _ := os.ReadFile(dir + "/tries")
			assert.Len(t, string(tries), fails+1)
			assert.Equal(t, fails, reports)
			assert.False(t, g.now().Stuck)
			stuck, _ := os.ReadFile(dir + "/stuck")
			if why == child.Told {
				assert.Empty(t, said)
				assert.Empty(t, stuck, "guard runs the hook itself")
			} else {
				assert.Len(t, said, 2+fails, "%q", said)
				assert.Equal(t, fails > 0, string(stuck) == "7 "+g.deactivate+": exit code 1\n", "%s", stuck)
			}
		}
	}
}

// A deactivation that hangs is killed after nine tenths of the confirmation period, before the next machine activates the service. One
// that ends in time, well or not, is not reported to be late: --on-stuck may reset the machine.
func TestADeactivationHasNineTenthsOfTheConfirmation(t *testing.T) {
	for command, r := range map[string]struct {
		confirm int
		want    string
	}{"sleep 1000": {10, "killed after 90ms: "}, "true": {10_000, ""}, "exit 3": {10_000, "exit code 3"}} {
		g := guardWith(func(g *guarding) { g.deactivate, g.renew, g.confirm = command, 10*time.Millisecond, r.confirm })
		late := make(chan error, 1)
		if err := g.switchOff(func(err error) { late <- err }); r.want != "" {
			assert.ErrorContains(t, err, r.want)
		} else {
			assert.NoError(t, err)
		}
		if r.confirm > 10 {
			time.Sleep(time.Millisecond)
			assert.Empty(t, late, "%s is not late", command)
		}
	}
}

// A watchdog that can't release the lock gives up after a lease, because the lock has expired by then. Otherwise, a watchdog would remain
// after each exec that was killed, for as long as the database is away.
func TestAWatchdogThatCanNotReleaseTheLockEnds(t *testing.T) {
	x := &execution{reports: reports{lockCommand: answering(t, status.Error(codes.Unavailable, "away")).lockCommand}, lease: time.Second / 10}
	said := commandtest.Complaints(func() {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.watchdogAction(child.Act{Why: child.Dead, Gone: func() bool { return true }})
		}()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			assert.Fail(t, "it tries on")
		}
	})
	assert.Contains(t, fmt.Sprint(said), "job is left to expire")
}

// A watchdog acts even if nothing reads its messages, and each of its messages says when it was written: they are all that is known of what
// happened after the death of its parent.
func TestAWatchdogActsWhoeverReadsItsMessages(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(dir + "/said")
	require.NoError(t, err)
	defer file.Close()
	unread, full, err := os.Pipe()
	require.NoError(t, err)
	defer unread.Close()
	defer full.Close()
	require.NoError(t, full.SetWriteDeadline(time.Now().Add(time.Second/20)))
	for err == nil {
		_, err = full.Write(make([]byte, 1<<16))
	}
	complaints := os.Stderr
	defer func() { os.Stderr = complaints }()
	for _, reader := range []*os.File{file, full} {
		os.Stderr = reader
		g := guardWith(func(g *guarding) { g.deactivate = "echo off >" + dir + "/off" })
		dog, err := g.arm(nil, time.Now())
		os.Stderr = complaints
		require.NoError(t, err)
		assert.Equal(t, "off", contents(t, dir+"/off"))
		require.NoError(t, os.Remove(dir+"/off"))
		require.NoError(t, g.Deactivate(t.Context()))
		<-dog.Gone()
		require.NoError(t, os.Remove(dir+"/off"))
	}
	said := regexp.MustCompile(`\A(\d{4}-\d\d-\d\dT\S+ spindle: service: .*\n){2}\z`)
	assert.Eventually(t, func() bool { text, _ := os.ReadFile(file.Name()); return said.Match(text) }, 10*time.Second, time.Millisecond)
}

// The commands of a guard print to guard's own output, whether guard or a watchdog runs them. They read nothing, because what a user types
// is not for them.
func TestTheCommandsOfAGuardPrintLikeGuard(t *testing.T) {
	const command = "cat; echo said; echo wrong >&2"
	files := [...]**os.File{&os.Stdin, &os.Stdout, &os.Stderr}
	for name, run := range map[string]func(context.Context, *guarding) error{
		"--activate":    func(ctx context.Context, g *guarding) error { return g.Activate(ctx, termOf(t, g)) },
		"--deactivate":  func(ctx context.Context, g *guarding) error { return g.Deactivate(ctx) },
		"--healthcheck": func(ctx context.Context, g *guarding) error { return g.Check(ctx, active) },
	} {
		g := guardWith(func(g *guarding) {
			g.renew = 20 * time.Second
			switch name {
			case "--activate":
				g.activate = command
			case "--deactivate":
				g.deactivate = command
			default:
				g.healthcheck = command + "; :"
			}
		})
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/0", []byte("typed"), 0o600))
		var own [len(files)]*os.File
		for i, file := range files {
			f, err := os.OpenFile(fmt.Sprintf("%s/%d", dir, i), os.O_RDWR|os.O_CREATE, 0o600)
			require.NoError(t, err)
			defer f.Close()
			own[i], *file = *file, f
		}
		err := run(t.Context(), g)
		for i, file := range files {
			*file = own[i]
		}
		require.NoError(t, err, name)
		assert.Equal(t, "said", contents(t, dir+"/1"), name)
		assert.Equal(t, "wrong", contents(t, dir+"/2"), name)
		if g.deactivate != command {
			require.NoError(t, g.Deactivate(t.Context()))
		}
	}
}

// A process that waited behind a gate and never became the program has not run it. Its exit code says so: otherwise, work that was
// never done would be recorded as done.
func TestAProcessThatDoesNotBecomeTheProgramHasNotRunIt(t *testing.T) {
	for _, line := range []string{"", fmt.Sprintln(time.Now().Add(-time.Nanosecond).UnixNano()), "opens\n"} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = io.WriteString(w, line)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		gate, err := syscall.Dup(int(r.Fd())) // the process behind the gate owns it
		require.NoError(t, err)
		code, is := Beside([]string{child.Behind, strconv.Itoa(gate), "-1", "false", "/bin/true", "true"})
		assert.True(t, is)
		assert.Equal(t, child.CannotRun, code, "%q", line)
		require.NoError(t, r.Close())
	}
}
