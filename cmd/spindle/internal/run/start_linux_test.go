package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// The tests of this file start real processes, with their watchdogs, under locks of a table in memory.

func guardWith(change func(*guarding)) *guarding {
	g := &guarding{reports: reportsOn(&memstore.Store{}, "service", "me", 3*time.Second), activate: "true", deactivate: "true",
		checks: checks{healthcheck: "true", unhealthy: 1}, renew: time.Second, confirm: 3, activation: time.Minute}
	g.hooks.Limit = time.Minute
	change(g)
	return g
}

// runs runs exec with a program, and with the signals that come once the program has written a file.
func runs(t *testing.T, store *memstore.Store, signal os.Signal, args ...string) (code int) {
	x := &execution{reports: reportsOn(store, "job", "me", lease), lease: lease, args: args}
	signals := make(chan os.Signal, 1)
	ready := filepath.Join(t.TempDir(), "ready")
	t.Setenv("READY", ready)
	if signal != nil {
		go func() {
			for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
				time.Sleep(time.Millisecond)
			}
			signals <- signal
		}()
	}
	var end *terminal.Exit
	errors.As(x.newPrograms(signals, nil, 0).run(), &end)
	if end != nil {
		code = end.Code
	}
	return code
}

func TestNothingIsLeftOfAnExec(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(notes, []byte("not a program"), 0o600))
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("\x00\x01"), 0o700))
	for name, r := range map[string]struct {
		args   []string
		signal os.Signal
		code   int
	}{
		"a program that is missing":        {args: []string{filepath.Join(t.TempDir(), "missing")}, code: child.NotFound},
		"one that is no program":           {args: []string{notes}, code: child.CannotRun},
		"one that the kernel can't read":   {args: []string{garbage}, code: child.CannotRun},
		"one with too long an argument":    {args: []string{"true", strings.Repeat("x", 1<<18)}, code: child.CannotRun},
		"one that succeeds":                {args: []string{"true"}},
		"one that fails":                   {args: []string{"sh", "-c", "exit 3"}, code: 3},
		"one that leaves another":          {args: []string{"sh", "-c", "sleep 1000 & exit 4"}, code: 4},
		"one that a signal ends":           {args: []string{"sh", "-c", "touch $READY; exec sleep 1000"}, signal: syscall.SIGTERM, code: 143},
		"one that ends itself by a signal": {args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
	} {
		testcheck.NothingLeft(t, func() {
			store := &memstore.Store{}
			assert.Equal(t, r.code, runs(t, store, r.signal, r.args...), name)
			assert.True(t, store.Rows()["job"].Heartbeat.IsZero(), "%s: the lock is kept", name)
		})
	}
}

func TestNothingIsLeftOfACommandOfGuardThatCanNotBeStarted(t *testing.T) {
	testcheck.NothingLeft(t, func() {
		g := guardWith(func(g *guarding) { g.healthcheck = tooLong })
		assert.ErrorContains(t, g.Check(t.Context(), active), "can't be run")
	})
	testcheck.NothingLeft(t, func() {
		g := guardWith(func(g *guarding) { g.deactivate = tooLong })
		assert.ErrorContains(t, g.Deactivate(t.Context()), "can't start the watchdog")
		assert.ErrorContains(t, g.Activate(t.Context(), termOf(t, g)), "can't start the watchdog")
		assert.Nil(t, g.dog.Load())
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	testcheck.NothingLeft(t, func() {
		g := guardWith(func(g *guarding) { g.activate = tooLong })
		assert.ErrorContains(t, g.Activate(ctx, termOf(t, g)), "can't be run")
		assert.NotNil(t, g.dog.Load(), "the service may be active")
		assert.NoError(t, g.Deactivate(ctx))
		assert.Nil(t, g.dog.Load())
	})
}

// A command need not be UTF-8: the watchdog runs the very bytes that guard was given.
func TestAWatchdogDeactivatesWithTheBytesThatGuardWasGiven(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	g := guardWith(func(g *guarding) { g.deactivate, g.renew = "printf 'caf\xe9' >"+ran, 20*time.Second })
	require.NoError(t, g.Activate(t.Context(), termOf(t, g)))
	require.NotNil(t, g.dog.Load(), "the watchdog deactivates the service")
	require.NoError(t, g.Deactivate(t.Context()))
	said, err := os.ReadFile(ran)
	require.NoError(t, err)
	assert.Equal(t, "caf\xe9", string(said))
}

// A watchdog may have to do all of its guard's work: it knows what guard knows when it is started. That includes the token of a term that
// is over, because the service may still be active under it.
func TestAWatchdogIsToldAllThatItsGuardKnows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "duty")
	g := guardWith(func(g *guarding) {
		g.renew, g.confirm, g.deactivate = 20*time.Second, 7, "tr '\\0' '\\n' </proc/$PPID/cmdline >"+path
		g.hooks.Commands[onStuck] = "reset"
	})
	want := duty{Path: g.Path, Table: g.Table, Name: "service", ID: "me", LogFormat: "text", Renew: g.renew, Confirm: 7, Deactivate: []byte(g.deactivate), OnStuck: []byte("reset"), HookLimit: time.Minute}
	knows := func() {
		t.Helper()
		require.NoError(t, g.Deactivate(t.Context()))
		args := strings.Split(contents(t, path), "\n")
		var got duty
		require.NoError(t, json.Unmarshal([]byte(args[len(args)-1]), &got))
		assert.Equal(t, want, got)
	}
	knows()
	term := termOf(t, g)
	g.acquired(term)
	want.Token = term.Token()
	knows()
	require.NoError(t, g.Activate(t.Context(), term))
	knows()
	g.over()
	knows()
}

func termOf(t *testing.T, g *guarding) *elect.Term {
	step := g.candidate.Try(t.Context(), elect.All, 0)
	require.NotNil(t, step.Term, "%v", step.Err)
	t.Cleanup(func() { step.Term.End(errors.New("the test is over")) })
	return step.Term
}

// A watchdog that acts on its own knows all that guard was told: its hook runs with the lock and the token, and a deactivation has the
// time of --confirm.
func TestAWatchdogKnowsWhatGuardWasTold(t *testing.T) {
	dir := t.TempDir()
	g := guardWith(func(g *guarding) {
		g.deactivate = fmt.Sprintf("sleep 0.1; echo >>%[1]s/tries; [ $(wc -l <%[1]s/tries) -gt 1 ]", dir)
		g.renew, g.confirm, g.state.last = 20*time.Millisecond, 3000, 7
		g.hooks.Commands[onStuck] = "echo $SPINDLE_LOCK $SPINDLE_TOKEN >>" + dir + "/stuck"
	})
	dog, err := g.arm(nil, time.Now())
	require.NoError(t, err)
	<-dog.Begun()
	assert.Equal(t, "service 7", contents(t, dir+"/stuck"))
	assert.NoError(t, g.Deactivate(t.Context()))
	<-dog.Gone()
}

// A service is inactive once guard says so, and deactivated only as often as it must be, however its watchdog ends: one that is killed
// during a deactivation is replaced, and one that has missed its deadline has already begun.
func TestAServiceIsInactiveHoweverItsWatchdogEnds(t *testing.T) {
	const bare, term, late = "no watchdog", "a watchdog of a term", "a watchdog that has missed its deadline"
	for _, r := range []struct {
		armed  string
		killed int // how many deactivations
	}{{bare, 2}, {term, 1}, {late, 0}, {late, 2}} {
		dir := t.TempDir()
		testcheck.NothingLeft(t, func() {
			g := guardWith(func(g *guarding) {
				g.renew = 20 * time.Second
				g.deactivate = fmt.Sprintf("echo >>%[1]s/tries; [ $(wc -l <%[1]s/tries) -gt %[2]d ] || { kill -9 $PPID; exec sleep 100; }; echo off $SPINDLE_LOCK >>%[1]s/off", dir, r.killed)
			})
			off := "off service"
			switch r.armed {
			case term:
				require.NoError(t, g.Activate(t.Context(), termOf(t, g)))
				assert.NoError(t, g.Check(t.Context(), active))
			case late:
				dog, err := g.arm(termOf(t, g), time.Now())
				require.NoError(t, err)
				<-dog.Begun()
				assert.ErrorContains(t, g.Check(t.Context(), active), "is already deactivating the service, or has exited")
				if r.killed == 0 {
					assert.Equal(t, off, contents(t, dir+"/off"))
					off += "\n" + off
				} else {
					<-dog.Gone()
				}
			}
			failed := 0
			for ; g.Deactivate(t.Context()) != nil; failed++ {
				assert.True(t, g.now().Stuck)
			}
			assert.False(t, g.now().Stuck)
			assert.Nil(t, g.dog.Load())
			assert.Equal(t, r.killed/2, failed, "%+v: two watchdogs are tried", r)
			assert.Equal(t, off, contents(t, dir+"/off"))
		})
	}
}

// A service that could not be deactivated, or not in time, is reported until it has been, and --on-stuck runs again if that
// happens again. A deactivation that guard itself breaks off says nothing of the service.
func TestAServiceIsStuckUntilItIsDeactivated(t *testing.T) {
	dir := t.TempDir()
	g := guardWith(func(g *guarding) { g.deactivate, g.confirm = "[ -e "+dir+"/mended ]", 60 })
	g.hooks = hooks{Commands: [...]string{onStuck: "echo >>" + dir + "/stuck"}, Limit: time.Minute, Warn: t.Errorf}
	over, stop := context.WithCancel(t.Context())
	stop()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for range 3 {
		assert.Error(t, g.Deactivate(over))
		assert.False(t, g.now().Stuck)
		for _, ctx := range []context.Context{late, t.Context(), late} {
			assert.Error(t, g.Deactivate(ctx))
			g.Extended() // a heartbeat is acknowledged meanwhile
			g.hooks.Wait(nil)
			assert.True(t, g.now().Stuck)
		}
		require.NoError(t, os.WriteFile(dir+"/mended", nil, 0o600))
		assert.NoError(t, g.Deactivate(t.Context()))
		assert.False(t, g.now().Stuck)
		require.NoError(t, os.Remove(dir+"/mended"))
	}
	said, err := os.ReadFile(dir + "/stuck")
	require.NoError(t, err)
	assert.Equal(t, "\n\n\n", string(said))
}

func TestNothingIsLeftOfAGuard(t *testing.T) {
	for _, activate := range []string{"true", tooLong, "exit 3"} {
		testcheck.NothingLeft(t, func() {
			g := guardWith(func(g *guarding) { g.activate = activate })
			s := g.newServices(g)
			ctx, stop := context.WithCancel(t.Context())
			asks := make(chan struct{})
			g.asks = asks
			go func() { // until the activation has ended
				defer stop()
				for begun := false; !begun || g.now().Why == activating; begun = begun || g.dog.Load() != nil {
					asks <- struct{}{}
				}
			}()
			s.run(ctx)
			assert.Nil(t, g.dog.Load())
		})
	}
}

// A guard that is stopped while another one manages its service ends without touching the service, although the other ends
// meanwhile.
func TestAGuardThatIsStoppedBehindAnotherLeavesTheServiceAlone(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	g := guardWith(func(*guarding) {})
	require.NoError(t, g.alone(t.Context()))
	require.NotNil(t, g.lockFile)
	other := guardWith(func(*guarding) {})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var over *terminal.Exit
	require.ErrorAs(t, other.alone(ctx), &over, "it would go on to deactivate the service")
	assert.Zero(t, over.Code)
	assert.Nil(t, other.lockFile)
}

// Guards of the same service wait for each other, whatever else differs between them, and other guards don't: a guard that waited for
// another service's guard would never begin.
func TestGuardsWaitForEachOtherIfTheyManageTheSameService(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	first := func(g *guarding) { g.name, g.deactivate = "service", "stop it" }
	for name, r := range map[string]struct {
		change func(*guarding)
		apart  bool
	}{
		"the same guard": {change: func(*guarding) {}},
		"another id and other times": {change: func(g *guarding) {
			g.id, g.renew, g.confirm, g.activate, g.healthcheck = "you", time.Minute, 9, "false", ""
		}},
		"another lock":              {func(g *guarding) { g.name = "other" }, true},
		"another table":             {func(g *guarding) { g.Table = "other" }, true},
		"another database":          {func(g *guarding) { g.Path += "2" }, true},
		"another command":           {func(g *guarding) { g.deactivate = "stop that" }, true},
		"the same letters":          {func(g *guarding) { g.name, g.deactivate = "services", "top it" }, true},
		"another working directory": {func(*guarding) { t.Chdir(t.TempDir()) }, true},
	} {
		g := guardWith(first)
		require.NoError(t, g.alone(t.Context()))
		other := guardWith(func(g *guarding) { first(g); r.change(g) })
		err := other.takeLockFile()
		if r.apart {
			require.NoError(t, err, name)
			other.lockFile.End()
			g.lockFile.End()
			continue
		}
		require.ErrorIs(t, err, child.ErrBusy, name)
		said := strings.Join(commandtest.Complaints(func() {
			other.renew = time.Millisecond
			begins := make(chan error)
			go func() { begins <- other.alone(t.Context()) }()
			require.Eventually(t, func() bool { return strings.HasPrefix(other.now().Why, "waiting because another guard") }, 10*time.Second, time.Millisecond)
			time.Sleep(10 * time.Millisecond) // it asks again
			g.lockFile.End()
			require.NoError(t, <-begins)
		}), "\n")
		assert.Equal(t, 1, strings.Count(said, "waiting because"), said)
		require.NotNil(t, other.lockFile, name)
		assert.ErrorIs(t, g.takeLockFile(), child.ErrBusy, "the other guard has it now")
		other.lockFile.End()
	}
	g := guardWith(first)
	require.NoError(t, g.takeLockFile())
	path := g.lockFile.Name()
	g.lockFile.End()
	require.NoError(t, os.Mkdir(path, 0o700))
	said := commandtest.Complaints(func() { assert.NoError(t, g.alone(t.Context())) })
	assert.Contains(t, said[0], "can't check whether another guard manages this service")
	assert.Nil(t, g.lockFile)
}

// Each flag of guard is refused just beyond its limits, and no earlier.
func TestTheFlagsOfGuardHaveLimits(t *testing.T) {
	for want, changes := range map[string][]func(*guarding){
		"": {
			func(*guarding) {}, func(g *guarding) { g.failures = 2 }, func(g *guarding) { g.failures = 1000 }, func(g *guarding) { g.confirm = 1 },
			func(g *guarding) { g.confirm = 1000 }, func(g *guarding) { g.renew, g.failures = 50*time.Millisecond, 2 },
			func(g *guarding) { g.renew, g.failures = table.MaxLease/2, 2 }, func(g *guarding) { g.activation = 1 }, func(g *guarding) { g.unhealthy = 100 },
			func(g *guarding) { g.hooks.Limit = 1 }, func(g *guarding) { g.address = ":0" },
		},
		"both commands are required": {func(g *guarding) { g.activate = "" }, func(g *guarding) { g.deactivate = "" }},
		"--failures":                 {func(g *guarding) { g.failures = 1 }, func(g *guarding) { g.failures = 1001 }, func(g *guarding) { g.failures = -2 }},
		"--confirm":                  {func(g *guarding) { g.confirm = 0 }, func(g *guarding) { g.confirm = 1001 }},
		"the lease must be": {func(g *guarding) { g.renew, g.failures = 50*time.Millisecond-1, 2 }, func(g *guarding) { g.renew, g.failures = table.MaxLease/2+1, 2 },
			func(g *guarding) { g.renew = 0 }, func(g *guarding) { g.renew = -time.Second }},
		"--activation":    {func(g *guarding) { g.activation = 0 }, func(g *guarding) { g.activation = -1 }},
		"--unhealthy":     {func(g *guarding) { g.unhealthy = 0 }, func(g *guarding) { g.unhealthy = 101 }},
		"--hook-timeout":  {func(g *guarding) { g.hooks.Limit = 0 }},
		"--health-listen": {func(g *guarding) { g.address = "8118" }},
	} {
		for i, change := range changes {
			if err := guardWith(func(g *guarding) { g.failures = 3; change(g) }).check(); want == "" {
				assert.NoError(t, err, "%d", i)
			} else {
				assert.ErrorContains(t, err, want, "%d", i)
			}
		}
	}
}
