package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

var errPlain = errors.New("the reason")

// A program that asks about its hold, an operator who reads the list, and the metrics are told the same state, in every phase and for
// every end. Only a hold whose program may act has a token and time left, which programs act by.
func TestAHoldIsDescribedInEveryPhaseAndAfterEveryEnd(t *testing.T) {
	lost := status{phase: over, lost: "the reason"}
	refused := status{phase: over, refusal: errPlain}
	unknown := status{phase: over, failure: errPlain}
	for _, c := range []struct {
		status         status
		state, outcome string
		token, left    int64
		detail         string
	}{
		{status: status{phase: waiting}, state: "waiting"},
		{status: status{phase: missed}, state: "waiting"},
		{status: status{phase: quitting}, state: "waiting"},
		{status: status{phase: held}, state: "held", token: 1, left: 1500},
		{status: status{phase: doubtful}, state: "held", token: 1, left: 1500},
		{status: status{phase: stopping}, state: "stopping", token: 1, left: 1500},
		{status: status{phase: orphaned, lost: "the reason"}, state: "orphaned"},
		{status: status{phase: releasing}, state: "releasing"},
		{status: status{phase: over}, state: "released", outcome: "released"},
		{status: lost, state: "lost", outcome: "lost", detail: "the reason"},
		{status: refused, state: "refused", outcome: "refused", detail: "the reason"},
		{status: unknown, state: "released", outcome: "unknown"},
		{status: status{phase: over, lost: "the reason", failure: errPlain}, state: "lost", outcome: "lost", detail: "the reason"},
	} {
		h := &hold{owner: owner{id: "0123", holder: "host/1/job", asked: &request{kind: locks, names: []string{"a", "b"}}, who: peer.Identity{PID: 7, Command: "job"}},
			account: account{now: c.status}, term: term{lock: fixed{1500 * time.Millisecond}}}
		assert.Equal(t, holdJSON{Hold: "0123", Kind: locks, Names: []string{"a", "b"}, State: c.state, Token: c.token, Left: c.left, Program: "job[7]", Holder: "host/1/job", Detail: c.detail}, h.describe(), "%+v", c.status)
		assert.Equal(t, c.state, c.status.state())
		if c.status.phase == over {
			assert.Equal(t, c.outcome, c.status.outcome(), "%+v", c.status)
		}
	}
	late := &hold{owner: owner{asked: &request{}}, account: account{now: status{phase: held}}, term: term{lock: fixed{-time.Second}}}
	assert.Zero(t, late.describe().Left, "time that has passed is not a negative time left")
}

// The lines to a program and the hold's own goroutine may change a hold's status at once, and neither change is lost. Without
// the promise that a line makes, another program could get the lock while the first one acts.
func TestNoChangeOfAStatusIsLost(t *testing.T) {
	const changes = 1000
	a := new(account)
	var both sync.WaitGroup
	for _, change := range []func(*status){func(s *status) { s.promised.left++ }, func(s *status) { s.phase++ }} {
		both.Go(func() {
			for range changes {
				a.change(func(s *status) { runtime.Gosched(); change(s) }) // the other change may be made in between
			}
		})
	}
	both.Wait()
	assert.Equal(t, status{phase: changes, promised: promise{left: changes}}, a.status())
}

// The answer to a release, or to a request that the work is done, is 200 only if the lock was held until then, and if the key was
// recorded as done when that was asked. Every loss is 410, and an unknown outcome is 202.
func TestTheAnswerToAReleaseSaysWhatBecameOfTheLock(t *testing.T) {
	type want struct {
		status int
		says   string
	}
	released, unknown := want{http.StatusOK, `"state":"released"`}, want{http.StatusAccepted, `"state":"unknown"`}
	undone, why := want{http.StatusGone, "not recorded as done"}, want{http.StatusGone, `"detail":"why"`}
	for _, c := range []struct {
		lost         string
		gone         bool
		failure      error
		want, undone want // undone: if the program asked to record the key, but it was not recorded
	}{
		{"", false, nil, released, undone},
		{"", false, lock.ErrNotHeld, want{http.StatusGone, lock.ErrNotHeld.Error()}, undone},
		{"", false, spindle.ErrSuperseded, want{http.StatusGone, spindle.ErrSuperseded.Error()}, undone},
		{"", false, spindle.ErrExpired, want{http.StatusGone, spindle.ErrExpired.Error()}, undone},
		{"", false, context.DeadlineExceeded, unknown, undone},
		{"", false, errPlain, unknown, undone},
		{"why", false, nil, why, why},
		{"why", false, lock.ErrNotHeld, why, why},
		{"why", false, spindle.ErrSuperseded, why, why},
		{"why", false, spindle.ErrExpired, why, why},
		{"why", false, context.DeadlineExceeded, why, why},
		{"why", false, errPlain, why, why},
		{"", true, nil, want{http.StatusGone, "released before"}, undone}, // another program may have it
		{"", true, errPlain, want{http.StatusGone, "released before"}, undone},
		{"why", true, nil, why, why},
	} {
		for _, r := range []struct {
			recorded, done bool
			want           want
		}{{false, false, c.want}, {true, false, c.want}, {true, true, c.want}, {false, true, c.undone}} {
			s := status{phase: over, lost: c.lost, gone: c.gone, failure: c.failure, done: r.recorded}
			said := httptest.NewRecorder()
			s.becameOf(r.done).write(said)
			assert.Equal(t, r.want.status, said.Code, "%+v, done=%v", s, r.done)
			assert.Contains(t, said.Body.String(), r.want.says, "%+v, done=%v", s, r.done)
		}
	}
}

// With wait=0, the status is the result: a program that asks again later must be able to tell a busy lock from a key that is done, and
// both from an outage.
func TestTheAnswerWithoutWaitingSaysWhyTheLockWasNotAcquired(t *testing.T) {
	assert.Nil(t, status{phase: held}.refused())
	for err, want := range map[error][2]any{
		errBusy: {http.StatusConflict, "busy"}, errDone: {http.StatusConflict, "done"}, lock.ErrPassed: {http.StatusConflict, "passed"},
		errAsked: {http.StatusServiceUnavailable, "unavailable"}, errPlain: {http.StatusServiceUnavailable, "unavailable"},
		errors.Join(errPlain, errBusy): {http.StatusConflict, "busy"},
	} {
		p, ok := status{phase: over, refusal: err}.refused().(*problem)
		require.True(t, ok)
		assert.Equal(t, want, [2]any{p.Status, p.Code}, "%v", err)
		assert.Equal(t, err.Error(), p.Detail)
	}
}

// No answer is kept by a cache or taken for another type than its own, and a refusal that may pass says when to ask again.
func TestEveryAnswerHasItsHeaders(t *testing.T) {
	for _, c := range []struct {
		answer      answer
		status      int
		kind, after string
	}{
		{ok(map[string]int{"held": 1}), http.StatusOK, "application/json", ""},
		{unknown(errPlain), http.StatusAccepted, "application/json", ""},
		{wrong(http.StatusGone, "lost", "why"), http.StatusGone, "application/problem+json", ""},
		{tooMany("why"), http.StatusTooManyRequests, "application/problem+json", "1"},
	} {
		recorder := httptest.NewRecorder()
		c.answer.write(recorder)
		said := recorder.Result() // with the headers that were sent
		assert.Equal(t, c.status, said.StatusCode)
		assert.Equal(t, []string{c.kind, "no-store", "nosniff", c.after}, []string{said.Header.Get("Content-Type"), said.Header.Get("Cache-Control"), said.Header.Get("X-Content-Type-Options"), said.Header.Get("Retry-After")})
	}
}

// The id of a holder names the machine, the process and the program, whatever they are called: operators find the program by it, and
// others must not be able to write a line or a path of their own into it.
func TestAHolderIsNamedAfterItsProgram(t *testing.T) {
	proof := proofOf("id")
	for _, c := range []struct {
		host, label string
		who         peer.Identity
		want        string
	}{
		{"h", "", peer.Identity{PID: 7, Command: "job"}, "h/7/job/"},
		{"h", "label", peer.Identity{PID: 7, Command: "job"}, "h/7/label/"},
		{"h", "label", peer.Identity{PID: 7, Command: "job", Unit: "a.service"}, "h/7/label a.service/"},
		{"h", "", peer.Identity{PID: 7, Command: "job", Unit: "a.service"}, "h/7/job a.service/"},
		{"h", "", peer.Identity{Unit: "pod"}, "h/0/pod/"},
		{"h/i", "a/b\nc\x7f", peer.Identity{PID: 7}, "h-i/7/a-b-c-/"},
		{"h\n", "\xffa", peer.Identity{PID: 7}, "h-/7/a/"},
		{strings.Repeat("h", 64), strings.Repeat("🚀", 201), peer.Identity{PID: 1 << 22}, strings.Repeat("h", 64) + "/4194304/" + strings.Repeat("🚀", 200) + "/"},
	} {
		id := holderOf(c.host, "id", c.label, c.who)
		assert.Equal(t, c.want+proof, id, "%+v", c)
		assert.LessOrEqual(t, len(id), table.MaxID)
	}
	assert.NotEqual(t, proofOf("other"), proof)
	assert.NotContains(t, holderOf("h", "id", "", peer.Identity{}), "/id", "the id is a secret")
}

// describing is a process whose command is known only once it has been described.
type describing struct {
	process
	described bool
}

func (d *describing) Describe() { d.described = true }

func (d *describing) Who() peer.Identity {
	who := d.process.Who()
	if d.described {
		who.Command = "job"
	}
	return who
}

// A holder is called by the name of its process, which the agent looks up only when it begins a hold.
func TestAHoldIsCalledByTheCommandOfItsProgram(t *testing.T) {
	h, bad := newBed(t).agent.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute}, &describing{process: somebody()})
	require.Nil(t, bad)
	assert.Equal(t, "host/1/job/"+proofOf(h.id), h.holder)
	assert.Equal(t, "job[1]", h.describe().Program)
}

// By each clock that a program can read, it may act for as long as the term lasts, and not at all once the term has ended.
func TestATermEndsByEveryClock(t *testing.T) {
	for left, ms := range map[time.Duration]int64{0: 0, -time.Second: 0, 999 * time.Microsecond: 0, time.Second: 1000, time.Minute + time.Microsecond: 60000} {
		assert.Equal(t, reading{Boottime: 100 + ms, Monotonic: 40 + ms, Unix: 5000 + ms}, reading{Boottime: 100, Monotonic: 40, Unix: 5000}.until(left), "%v", left)
		assert.Equal(t, reading{Unix: 5000 + ms}, reading{Unix: 5000}.until(left), "a clock that can't be read promises nothing")
	}
}

// A fence names the lease row of its own lock under the token, in each of its forms. A program that used another lock's row would write
// without any protection, or never.
func TestEveryFenceNamesTheLeaseOfItsLock(t *testing.T) {
	names := []string{"a", "b/slot/0001"}
	for i, f := range fences("locktable", names, 1700000000000000) {
		row := names[i] + "_1700000000000000"
		assert.Equal(t, fenceJSON{
			GoogleSQL:  "UPDATE locktable SET writer = writer WHERE name = @p1",
			PostgreSQL: "UPDATE locktable SET writer = writer WHERE name = $1",
			Parameter:  row,
			Rows:       1,
			Mutation:   map[string]any{"update": map[string]any{"table": "locktable", "columns": []string{"name"}, "values": [][]any{{row}}}},
		}, f)
	}
	assert.Len(t, fences("locktable", names, 1), len(names))
}

// The mutations that a program adds to its transaction have the form that Spanner's REST API takes, with times as precise as Spanner's and
// in UTC. One that the API refuses, or reads as another value, would make the program's commit fail or its record wrong.
func TestAMutationHasTheFormOfSpannersAPI(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.FixedZone("there", 3600))
	for kind, name := range map[table.Kind]string{table.Insert: "insert", table.Update: "update", table.Put: "insertOrUpdate"} {
		writes := []table.Write{{Kind: kind, Name: "a"}, {Kind: kind, Name: "b", Set: []table.Cell{
			{Column: "time", Value: at}, {Column: "text", Value: ""}, {Column: "none", Value: nil}, {Column: "now", Value: table.Now}}}}
		for _, tableName := range []string{"t", "public.t"} { // the API does not know PostgreSQL's default schema
			text, err := json.Marshal(mutations(tableName, writes...))
			require.NoError(t, err)
			assert.JSONEq(t, fmt.Sprintf(`[{%q: {"table": "t", "columns": ["name"], "values": [["a"]]}}, {%q: {"table": "t", "columns": ["name", "time", "text", "none", "now"],
				"values": [["b", "2026-01-02T02:04:05.678901Z", "", null, "spanner.commit_timestamp()"]]}}]`, name, name), string(text))
		}
	}
}

// A name is allowed if it begins with one of the prefixes, to the letter: a program could otherwise take the locks of another team. Without
// prefixes, every name is allowed.
func TestANameIsAllowedIfItBeginsWithAPrefix(t *testing.T) {
	prefixes := [][]string{nil, {"ok/"}, {"ok/", "b"}, {"b", "ok/"}}
	for name, allowed := range map[string][]bool{
		"ok/": {true, true, true, true}, "ok/a": {true, true, true, true}, "b": {true, false, true, true}, "bc/ok/": {true, false, true, true},
		"ok": {true, false, false, false}, "okay": {true, false, false, false}, "OK/a": {true, false, false, false}, " ok/a": {true, false, false, false}, "a/ok/b": {true, false, false, false},
	} {
		for i, want := range allowed {
			bad := New(Config{Allow: prefixes[i]}).allowed(name)
			assert.Equal(t, want, bad == nil, "%q with %q", name, prefixes[i])
			assert.True(t, bad == nil || bad.Status == http.StatusForbidden && bad.Code == "name-not-allowed", "%+v", bad)
		}
	}
}
