//go:build unix

package operate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
	"github.com/spindle-lock/spindle/spindletest"
)

// onEmulator returns a database on an emulator, on which this package's commands run too.
func onEmulator(t *testing.T) (path string, tab table.Table) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t)
	t.Setenv("SPANNER_EMULATOR_HOST", db.Host)
	tab = table.Table{Store: table.Spanner{DB: db.Client, Table: db.Table}}
	_, err := tab.Observe(t.Context(), "x") // until then, the client looks at os.Stderr, which prints replaces
	require.NoError(t, err)
	return db.Path, tab
}

// answered runs a command at a terminal. When the command has asked its question, something happens, and then the user answers.
func answered(t *testing.T, meanwhile func(), answer string, run func() error) (out string, err error) {
	t.Helper()
	there, here, err := pty.Open()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, some := "", make([]byte, 1024)
		for {
			n, err := there.Read(some)
			if err != nil {
				return
			}
			if text += string(some[:n]); strings.HasSuffix(text, "? [y/N] ") {
				meanwhile()
				_, _ = there.WriteString(answer)
			}
		}
	}()
	defer func(in *os.File) { os.Stdin = in }(os.Stdin)
	os.Stdin = here
	out, _, err = prints(t, func() error {
		os.Stderr = here
		return run()
	})
	require.NoError(t, here.Close())
	<-done
	require.NoError(t, there.Close())
	return out, err
}

// A lock is released only under the token of its term, and only if the user says yes: with the flag, or in answer to the question. In all
// other cases the lock stays as it is, the exit code says so, and nothing is printed that a script could take for a release.
func TestALockIsReleasedOnlyIfTheUserSaysYes(t *testing.T) {
	path, tab := onEmulator(t)
	n := 0
	for _, c := range []struct {
		answer string // to the question, or "|" if standard input is no terminal
		flags  string
		wrong  bool // the token
		says   string
	}{
		{"|", "--yes", false, ""}, {"|", "-y", false, ""}, {"n\n", "--yes", false, ""},
		{"|", "", false, "2: nothing was released: standard input is not a terminal"},
		{"y\n", "", false, ""}, {"YES\n", "", false, ""}, {" yes \n", "", false, ""},
		{"n\n", "", false, "1: nothing was released"}, {"\n", "", false, "1: nothing was released"}, {"yeah\n", "", false, "1: nothing was released"}, {"\x04", "", false, "1: nothing was released"},
		{"y\n", "", true, "1: nothing was released"}, {"|", "--yes", true, "1: nothing was released"},
	} {
		for _, format := range []string{"table", "json"} {
			for _, orphan := range []bool{false, c.answer == "|"} {
				n++
				name := fmt.Sprint("lock", n)
				token := steps.Hold(t, tab, name, time.Hour)
				if orphan {
					steps.Drop(t, tab, name)
				}
				given := token
				if c.wrong {
					given--
				}
				run := commandOf(NewRelease, path, strings.Fields(fmt.Sprintf("%s --token %v -o %s %s", name, given, format, c.flags))...)
				var out string
				var err error
				if c.answer == "|" {
					r, w, pipeErr := os.Pipe()
					require.NoError(t, pipeErr)
					_, _ = w.WriteString("y\n")
					_ = w.Close()
					func() {
						defer func(in *os.File) { os.Stdin = in }(os.Stdin)
						os.Stdin = r
						out, _, err = prints(t, run)
					}()
					_ = r.Close()
				} else {
					out, err = answered(t, func() {}, c.answer, run)
				}
				valid, validErr := tab.Valid(t.Context(), token, name)
				require.NoError(t, validErr)
				about := fmt.Sprintf("%+v, %s, orphan: %v", c, format, orphan)
				says := c.says
				if orphan {
					says = "1: nothing was released, because " + name + " is not held, because its lock row was deleted"
				}
				assert.Equal(t, says != "", valid, about)
				if says != "" {
					endsWith(t, err, says, about)
					assert.Empty(t, out, about)
					continue
				}
				assert.NoError(t, err, about)
				want := fmt.Sprintf("released %s, which was held under token %v\n", name, token)
				if format == "json" {
					want = fmt.Sprintf(`{"name":"%[1]s","holder":"%[1]s's holder","token":"%[2]v"}`+"\n", name, token)
				}
				assert.Equal(t, want, out, about)
			}
		}
	}
}

// A user may take longer to answer than the database may take, and the lock may change hands meanwhile. The answer is for the term that the
// question names: a later one goes on.
func TestAUserMayTakeTimeToAnswer(t *testing.T) {
	path, tab := onEmulator(t)
	for i, format := range []string{"table", "json"} {
		name := fmt.Sprint("lock", i)
		token := steps.Hold(t, tab, name, time.Hour)
		later := table.Token(0)
		out, err := answered(t, func() {
			assert.NoError(t, tab.Release(t.Context(), token, name))
			later = steps.Hold(t, tab, name, time.Hour)
		}, "y\n", commandOf(NewRelease, path, name, "--token", token.String(), "-o", format))
		endsWith(t, err, fmt.Sprintf("1: nothing was released: %v is no longer the current token of %s", token, name))
		assert.Empty(t, out)
		valid, err := tab.Valid(t.Context(), later, name)
		require.NoError(t, err)
		assert.True(t, valid, "the term that began meanwhile has ended")
		for limit := 100 * time.Millisecond; ; limit *= 2 { // a busy machine may need longer for its requests
			if valid, err := tab.Valid(t.Context(), later, name); assert.NoError(t, err) && !valid { // an attempt that timed out has released it
				later = steps.Hold(t, tab, name, time.Hour)
			}
			_, err = answered(t, func() { time.Sleep(limit) }, "y\n", commandOf(NewRelease, path, name, "--token", later.String(), "-o", format, "--timeout", limit.String()))
			if err == nil || limit > 10*time.Second {
				break
			}
		}
		assert.NoError(t, err)
	}
}

// A script learns from the exit code what has become of its request: whether another candidate has taken over, whether the holder accepts
// requests at all, whether the term is over, and whether it is the database that has failed. It waits for as long as --wait says.
func TestARequestForAHandoverEndsWithWhatHasBecomeOfIt(t *testing.T) {
	path, tab := onEmulator(t)
	const long, short, forEver, soon = 15 * time.Second, time.Microsecond, time.Hour, 20 * time.Millisecond
	hold := func(name, id string, lease time.Duration, accepts bool) table.Token {
		seen, err := tab.Observe(t.Context(), name)
		assert.NoError(t, err)
		token, err := tab.Claim(t.Context(), id, seen...)
		assert.NoError(t, err)
		assert.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{ID: id, Lease: lease, AcceptsHandover: accepts}, name))
		return token
	}
	for name, c := range map[string]struct {
		lease   time.Duration
		accepts bool
		changed bool   // the lock has another holder since the command looked
		next    string // the holder after the request
		table   string
		wait    time.Duration
		says    string
	}{
		"followed": {long, true, false, "second", "locktable", forEver, ""},
		"resumed":  {long, true, false, "first", "locktable", forEver, "5: first claimed resumed again, under token"},
		"kept":     {long, true, false, "", "locktable", soon, "5: no other candidate has taken over kept within 20ms: "},
		"deaf":     {long, false, false, "", "locktable", forEver, "4: the holder of deaf, first, does not accept requests"},
		"changed":  {long, true, true, "", "locktable", forEver, "3: is not the current token of changed"},
		"expired":  {short, true, false, "", "locktable", forEver, "3: the lease on expired, held by first, has just expired"},
		"missing":  {long, true, false, "", "nowhere", forEver, "1: Table not found: nowhere"},
	} {
		for named, timeout := range map[bool]time.Duration{false: 1, true: time.Hour} { // with --token or without
			steps.Drop(t, tab, name)
			token := hold(name, "first", c.lease, c.accepts)
			l, err := model.OneLock(t.Context(), tab, name)
			require.NoError(t, err)
			if c.changed {
				require.NoError(t, tab.Release(t.Context(), token, name))
				hold(name, "second", long, true)
			}
			h := &handover{Database: &database.Database{Path: path, Table: c.table, Timeout: timeout}, name: name, wait: c.wait}
			if named {
				h.token = int64(token)
			}
			db, err := h.Open(spindle.ClientOptions(0)...)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			next := make(chan struct{})
			go func() {
				defer close(next)
				for asked := false; !asked && c.next != "" && ctx.Err() == nil; {
					asked, _, _ = tab.Asked(ctx, name, token)
				}
				if c.next != "" {
					assert.NoError(t, tab.Release(t.Context(), token, name))
					hold(name, c.next, long, true)
				}
			}()
			began := time.Now()
			done, err := h.request(ctx, db, l)
			assert.NoError(t, ctx.Err(), "%s: it waits for too long", name)
			cancel()
			<-next
			db.Close()
			if c.says != "" {
				endsWith(t, err, c.says, "%s, with --token: %v", name, named)
			} else {
				assert.NoError(t, err)
				assert.Equal(t, []string{"first", "second"}, []string{done.From.ID, done.To.ID})
			}
			assert.True(t, c.wait == forEver || time.Since(began) >= c.wait, "it gives up before --wait")
		}
	}
}

// A handover waits for three leases of the lock that it is about, unless --wait says how long. The user learns which it was.
func TestAHandoverWaitsForThreeLeasesUnlessItIsToldOtherwise(t *testing.T) {
	path, tab := onEmulator(t)
	for wait, says := range map[time.Duration]string{0: "3h0m0s", time.Minute: "1m0s"} {
		name := fmt.Sprint("lock-", wait)
		token := steps.Claim(t, tab, name)
		require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{ID: "first", Lease: time.Hour, AcceptsHandover: true}, name))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			defer cancel() // instead of the wait
			for asked := false; !asked && ctx.Err() == nil; {
				asked, _, _ = tab.Asked(ctx, name, token)
			}
		}()
		h := &handover{Database: &database.Database{Path: path, Table: "locktable", Timeout: time.Minute}, name: name, wait: wait}
		endsWith(t, h.run(ctx), "5: no other candidate has taken over "+name+" within "+says+": ")
	}
}

// Init says whether it has created the table, and then which roles are needed: people run it again to see whether the table
// is right.
func TestInitSaysWhatItHasDone(t *testing.T) {
	path, _ := onEmulator(t)
	_, roles, err := runs(t, NewInit, path, "--print")
	require.NoError(t, err)
	for _, done := range []string{"was created", "exists and is correct"} {
		out, said, err := runs(t, NewInit, path, "--table", "other")
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("Table other in %s %s.\n\n%s", path, done, roles), out)
		assert.Empty(t, said)
	}
}
