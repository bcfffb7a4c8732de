package run

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// The tests of this file start real processes, with their watchdogs, under locks of a table in memory.

func lockCommandFor(name string) lockCommand {
	return lockCommand{Database: &connect.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: time.Second}, name: name, id: "me", quiet: true}
}

func candidateOn(store table.Store, c lockCommand, lease time.Duration) elect.Candidate {
	return elect.Candidate{Table: table.Table{Store: store}, Clock: elect.SystemClock{}, Names: []string{c.name}, ID: c.id, LeaseRecord: table.LeaseRecord{Lease: lease}}
}

// runs runs exec with a program, and with the signals that come once the program has written a file.
func runs(t *testing.T, store *memstore.Store, signal os.Signal, args ...string) (code int) {
	x := &execution{lockCommand: lockCommandFor("job"), lease: 10 * time.Second, args: args}
	x.reports.lockCommand = &x.lockCommand
	x.candidate = candidateOn(store, x.lockCommand, x.lease)
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
	e := Exec{command: command{Candidate: &x.candidate, Say: x.say, Warn: x.complain}, Job: x, Program: args[0], Signals: signals}
	var end *exit.Error
	errors.As(e.Run(), &end)
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

// tooLong is more than one argument of a program may be, so what has it can't be started.
var tooLong = "true " + strings.Repeat("x", 1<<18)

func TestNothingIsLeftOfACommandOfGuardThatCanNotBeStarted(t *testing.T) {
	guards := func() *guarding {
		return &guarding{lockCommand: lockCommandFor("service"), activate: "true", deactivate: "true", healthcheck: "true", renew: time.Second, confirm: 3}
	}
	testcheck.NothingLeft(t, func() {
		g := guards()
		g.healthcheck = tooLong
		assert.ErrorContains(t, g.Check(t.Context(), Active), "can't be run")
	})
	testcheck.NothingLeft(t, func() {
		g := guards()
		g.deactivate = tooLong
		assert.ErrorContains(t, g.Deactivate(t.Context()), "can't be run")
	})
	testcheck.NothingLeft(t, func() {
		g := guards()
		g.deactivate = tooLong
		assert.ErrorContains(t, g.Activate(t.Context(), termOf(t, g.lockCommand)), "can't start the watchdog")
		assert.Nil(t, g.dog.Load())
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	testcheck.NothingLeft(t, func() {
		g := guards()
		g.activate = tooLong
		assert.ErrorContains(t, g.Activate(ctx, termOf(t, g.lockCommand)), "can't be run")
		assert.NotNil(t, g.dog.Load(), "the service may be active")
		assert.NoError(t, g.Deactivate(ctx))
		assert.Nil(t, g.dog.Load())
	})
}

// A command need not be UTF-8: the watchdog runs the very bytes that guard was given.
func TestAWatchdogDeactivatesWithTheBytesThatGuardWasGiven(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	g := &guarding{lockCommand: lockCommandFor("service"), activate: "true", deactivate: "printf 'caf\xe9' >" + ran, renew: 20 * time.Second, confirm: 3}
	require.NoError(t, g.Activate(t.Context(), termOf(t, g.lockCommand)))
	require.NotNil(t, g.dog.Load(), "the watchdog deactivates the service")
	require.NoError(t, g.Deactivate(t.Context()))
	said, err := os.ReadFile(ran)
	require.NoError(t, err)
	assert.Equal(t, "caf\xe9", string(said))
}

func termOf(t *testing.T, c lockCommand) *elect.Term {
	candidate := candidateOn(&memstore.Store{}, c, time.Minute)
	step := candidate.Try(t.Context(), elect.All, 0)
	require.NotNil(t, step.Term, "%v", step.Err)
	t.Cleanup(func() { step.Term.End(errors.New("the test is over")) })
	return step.Term
}

// A program may outlive its lock in each term: --on-stuck runs for each of them, once. When it has exited, nothing more of its term
// is reported.
func TestWhatIsReportedOfATermEndsWithIt(t *testing.T) {
	stuck := filepath.Join(t.TempDir(), "stuck")
	x := &execution{lockCommand: lockCommandFor("job"), args: []string{"work"}}
	x.own, x.reports.lockCommand = pflag.NewFlagSet("exec", pflag.ContinueOnError), &x.lockCommand
	x.reports.hooks = hooks{Commands: map[hookKind]string{onStuck: "echo $SPINDLE_TOKEN >>" + stuck}, Limit: time.Minute, Warn: t.Errorf}
	var terms []string
	for range 3 {
		term := termOf(t, x.lockCommand)
		terms = append(terms, term.Token().String())
		x.Begin(term)
		for range 2 {
			x.Stuck(errors.New("it was killed"))
			x.reports.hooks.Wait(nil)
		}
		now := x.reports.now()
		assert.True(t, now.Held && now.Ready && now.Stuck, "%+v", now)
		x.Over()
		assert.Equal(t, health.Report{Why: "job is no longer held"}, x.reports.now())
		assert.Zero(t, x.token)
	}
	said, err := os.ReadFile(stuck)
	require.NoError(t, err)
	assert.Equal(t, terms, strings.Fields(string(said)))
}

// A service that could not be deactivated is reported until it has been, and --on-stuck runs again if that happens again.
func TestAServiceIsStuckUntilItIsDeactivated(t *testing.T) {
	dir := t.TempDir()
	g := &guarding{lockCommand: lockCommandFor("service"), deactivate: "[ -e " + dir + "/mended ]", renew: time.Second, confirm: 60}
	g.reports.lockCommand = &g.lockCommand
	g.reports.hooks = hooks{Commands: map[hookKind]string{onStuck: "echo >>" + dir + "/stuck"}, Limit: time.Minute, Warn: t.Errorf}
	for range 3 {
		for range 2 {
			assert.Error(t, g.Deactivate(t.Context()))
			g.reports.hooks.Wait(nil)
			assert.True(t, g.reports.now().Stuck)
		}
		require.NoError(t, os.WriteFile(dir+"/mended", nil, 0o600))
		assert.NoError(t, g.Deactivate(t.Context()))
		assert.False(t, g.reports.now().Stuck)
		require.NoError(t, os.Remove(dir+"/mended"))
	}
	said, err := os.ReadFile(dir + "/stuck")
	require.NoError(t, err)
	assert.Equal(t, "\n\n\n", string(said))
}

func TestNothingIsLeftOfAGuard(t *testing.T) {
	for activate, says := range map[string]string{"true": "is active", tooLong: "could not be activated", "exit 3": "could not be activated"} {
		testcheck.NothingLeft(t, func() {
			g := &guarding{lockCommand: lockCommandFor("service"), activate: activate, deactivate: "true", renew: time.Second, confirm: 3}
			ctx, stop := context.WithCancel(t.Context())
			tell := func(format string, _ ...any) {
				if strings.Contains(format, says) {
					stop()
				}
			}
			g.reports.lockCommand = &g.lockCommand
			candidate := candidateOn(&memstore.Store{}, g.lockCommand, 3*g.renew)
			(&Guard{command: command{Candidate: &candidate, Say: tell, Warn: tell}, Service: g, Renew: g.renew, Confirmation: g.confirmation(), Unhealthy: 1, Activation: time.Minute}).Run(ctx)
			assert.Nil(t, g.dog.Load())
		})
	}
}

// A signal ends exec while it waits for a database that hangs, without --timeout having to pass.
func TestASignalEndsAnExecWhoseDatabaseHangs(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hangs.Close()
	t.Setenv("SPANNER_EMULATOR_HOST", hangs.Addr().String())
	own := make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGTERM) // a signal that comes too early for exec must not end the test
	defer signal.Stop(own)
	o := &connect.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: 20 * time.Second, FlagSet: pflag.NewFlagSet("spindle", pflag.ContinueOnError)}
	c := NewExec(o)
	c.SetArgs([]string{"--quiet", "--name", "job", "true"})
	c.SilenceErrors, c.SilenceUsage = true, true
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(t.Context()) }()
	begun := time.Now()
	for {
		select {
		case err := <-ended:
			assert.Less(t, time.Since(begun), o.Timeout/2)
			assert.Error(t, err)
			return
		case <-time.After(100 * time.Millisecond):
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		}
	}
}

// A guard that is stopped while another one manages its service ends without touching the service, although the other ends
// meanwhile.
func TestAGuardThatIsStoppedBehindAnotherLeavesTheServiceAlone(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	g := &guarding{lockCommand: lockCommandFor("service"), activate: "true", deactivate: "true", renew: time.Second, confirm: 3}
	require.NoError(t, g.alone(t.Context()))
	require.NotNil(t, g.lockFile)
	other := &guarding{lockCommand: lockCommandFor("service"), activate: "true", deactivate: "true", renew: time.Second, confirm: 3}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var over *exit.Error
	require.ErrorAs(t, other.alone(ctx), &over, "it would go on to deactivate the service")
	assert.Zero(t, over.Code)
	assert.Nil(t, other.lockFile)
}
