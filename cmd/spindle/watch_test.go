//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/hinshun/vt10x"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// A store is a lock table with somebody's locks in it, and the network between it and what a test starts.
type store struct {
	table.Table
	*network.Link
	t   *testing.T
	env []string
}

func newStore(t *testing.T) *store {
	t.Helper()
	e, path := newDatabase(t)
	link, err := network.NewLink(e.Addr())
	require.NoError(t, err)
	t.Cleanup(link.Close)
	db, err := spanner.NewClientWithConfig(t.Context(), path, spanner.ClientConfig{DisableNativeMetrics: true}, e.ClientOptions()...)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &store{table.Table{Store: table.Spanner{DB: db, Table: "locktable"}}, link, t,
		[]string{"SPINDLE_DB=" + path, "SPANNER_EMULATOR_HOST=" + link.Addr()}}
}

// hold claims a lock, for a holder that sends no heartbeats.
func (s *store) hold(name, id string, lease time.Duration) table.Token {
	s.t.Helper()
	seen, err := s.Observe(s.t.Context(), name)
	require.NoError(s.t, err)
	token, err := s.Claim(s.t.Context(), id, seen...)
	require.NoError(s.t, err)
	require.NoError(s.t, s.Confirm(s.t.Context(), token, table.LeaseRecord{Lease: lease, Value: "http://" + id}, name))
	return token
}

func (s *store) released(name string) {
	s.t.Helper()
	require.NoError(s.t, s.Release(s.t.Context(), s.hold(name, "x", time.Second), name))
}

func (s *store) state(name string) operator.State {
	s.t.Helper()
	l, err := operator.ListOne(s.t.Context(), s.Table, name)
	require.NoError(s.t, err)
	return l.State()
}

const (
	escKey = "\x1b"
	enter  = "\r"
)

// What an operator needs is done without leaving the screen, with Spanner there and away.
func TestWatchAtATerminal(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 40 {
		s.released(fmt.Sprintf("order-%02d", i))
	}
	for i := range 3 {
		s.hold(fmt.Sprintf("stuck-%d", i), "web-9", 10*time.Millisecond)
	}
	for i := range 10 {
		s.hold(fmt.Sprintf("job-%02d", i), fmt.Sprintf("web-%d", i), time.Hour)
	}
	x := atTerminal(t, 80, 24, s.env, "spindle", "watch")
	first := x.shows("3 expired, 10 held; 40 released hidden")
	lines := strings.Split(first, "\n")
	assert.Regexp(t, `^as of ..:..:..Z by Spanner's clock, \d+s ago$`, lines[1])
	for i := range 3 {
		assert.Regexp(t, fmt.Sprintf("expired +stuck-%d +web-9", i), lines[4+i])
	}
	assert.Regexp(t, "held +job-09 +web-9 .*█████", lines[16])
	assert.NotContains(t, first, "order-")

	x.pressed("/job-05"+enter, "1 match /job-05")
	x.pressed(enter, `(?s)job-05 is held by web-5\n  token \d{16}.*lease 1h0m0s\n  value http://web-5`)
	x.pressed("h", "Ask web-5 to hand over job-05")
	x.pressed("y", "web-5, does not accept requests")
	x.pressed("x", "> held +job-05")
	x.pressed("r", `Release job-05, which web-5 holds under token \d{16}\?`)
	x.pressed("n", "> held +job-05")
	assert.Equal(t, operator.Held, s.state("job-05"))
	x.pressed("r", "Release job-05, which web-5")
	x.pressed("y", `released job-05, which was held under token \d{16}`)
	assert.Equal(t, operator.Released, s.state("job-05"))
	x.pressed("x"+escKey, "9 held; 41 released hidden")
	x.shows(`\d  job-05  released`)

	x.pressed("/job-06"+enter+"r", "Release job-06, which web-6")
	l, err := operator.ListOne(t.Context(), s.Table, "job-06")
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), l.Token, "job-06"))
	s.hold("job-06", "other", time.Hour)
	x.pressed("y", "nothing was released: .* is no longer the current token")
	assert.Equal(t, operator.Held, s.state("job-06"), "it has another holder now")
	x.pressed("x"+escKey, "> expired +stuck-0")

	s.BlackHole()
	x.shows(`^no answer from Spanner for \d+s; data is from ..:..:..Z$`)
	x.mu.Lock()
	assert.Contains(t, []vt10x.Color{vt10x.Red, vt10x.LightRed}, x.screen.Cell(0, 1).BG, "a colour that is seen")
	x.mu.Unlock()
	x.pressed("r", "reading stuck-0 before its release")
	x.pressed(escKey, "Enter detail")
	x.resize(20, 10)
	x.shows(`no answer from\nSpanner for \d+s;`)
	s.Mend()
	x.shows(`\A..:..:..Z, \d+s ago\n> expired  stuck-0`)
	x.resize(140, 40)
	x.shows("STATE +LOCK +HOLDER +TOKEN +SINCE +LEASE")
	x.press("q")
	assert.Equal(t, 0, x.code())
	assert.NotContains(t, x.text(), "STATE", "the screen is as it was before")
}

// The screen's request is the command's: the holder accepts, and the screen names the next holder.
func TestWatchHandsALockOver(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	exec := []string{"exec", "--name", "job", "--lease", "6s", "--handover", "--id"}
	a := atTerminal(t, 80, 24, s.env, "spindle", append(exec, "machine-a", "sleep", "1000")...)
	x := atTerminal(t, 80, 24, s.env, "spindle", "watch", "--every", "100ms")
	x.shows("> held +job +machine-a")
	b := atTerminal(t, 80, 24, s.env, "spindle", append(exec, "machine-b", "sleep", "1000")...)
	b.shows("waiting for job: held by machine-a")
	x.pressed("h", `Ask machine-a to hand over job, which it holds under token \d{16}\?`)
	x.pressed("y", "waiting for its handover")
	x.shows("(?s)job was handed over\n  from machine-a\n  to   machine-b, token")
	x.pressed("x", "> held +job +machine-b")
	x.press("q")
	assert.Equal(t, 0, x.code())
	_, _ = a, b
}

// The terminal is the shell's while watch is suspended, and watch's again afterwards.
func TestWatchIsSuspendedAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.hold("job", "web-1", time.Hour)
	x := atTerminal(t, 80, 24, s.env, "sh", "-c", "set -m; spindle watch; echo stopped; read line; fg >/dev/null; echo code $?")
	x.shows("> held +job")
	text := x.pressed("\x1a", "^stopped$")
	assert.NotContains(t, text, "STATE")
	s.hold("new", "web-2", time.Hour)
	x.pressed("go\n", "held +new +web-2")
	x.pressed("q", "^code 0$")
}

// Where no shell could resume it, as behind "ssh -t", Ctrl-Z must not stop it forever.
func TestWatchGoesOnIfNothingCouldResumeIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.hold("job", "web-1", time.Hour)
	for _, command := range [][]string{{"spindle", "watch"}, {"sh", "-c", "spindle watch; exit $?"}} {
		x := atTerminal(t, 80, 24, s.env, command[0], command[1:]...)
		x.shows("> held +job")
		x.pressed("\x1a?", "Locks in trouble are at the top")
		x.press("q")
		assert.Equal(t, 0, x.code())
	}
}

func TestWatchOfATableThatIsNotThereEndsWithAnError(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	x := atTerminal(t, 80, 24, s.env, "spindle", "watch", "--table", "nowhere")
	assert.Equal(t, 1, x.code())
	assert.Equal(t, 1, strings.Count(strings.ReplaceAll(x.text(), "\n", ""), "create the table with spindle init"), x.text())
}

func TestWatchLeavesATerminalWithoutAnswerAtOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.BlackHole()
	x := atTerminal(t, 80, 24, s.env, "spindle", "watch")
	x.shows(`no answer from Spanner for \d+s; nothing has been read yet`)
	x.press("\x03")
	assert.Equal(t, 0, x.code())
}

// Neither colours nor a screen are forced on a terminal, or on a person, that has no use for them.
func TestWatchWithoutColoursAndWithoutAScreen(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.hold("job", "web-1", time.Hour)
	s.hold("stuck", "web-2", time.Millisecond)
	x := atTerminal(t, 80, 24, append(s.env, "NO_COLOR=1"), "spindle", "watch")
	x.shows("> expired +stuck")
	assert.NotRegexp(t, `\x1b\[[\d;]*\b[349][0-7]m`, x.written())
	x.press("q")
	require.Equal(t, 0, x.code())
	for _, plain := range [][]string{{"TERM=dumb", "spindle", "watch"}, {"A=b", "spindle", "watch", "--plain"}} {
		x := atTerminal(t, 80, 24, append(s.env, plain[0]), plain[1], plain[2:]...)
		x.shows("Z  job  held by web-1, token")
		x.shows("Z  stuck  expired")
		assert.NotContains(t, x.written(), "\x1b[?", plain)
		x.press("\x03")
		assert.Equal(t, 0, x.code())
	}
}
