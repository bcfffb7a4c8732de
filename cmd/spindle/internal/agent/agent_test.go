package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/agent"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// patience is how long tests wait for an event that must come.
const patience = 5 * time.Minute

// bed is an agent that serves a socket and keeps its lock table in memory.
type bed struct {
	testing.TB
	agent  *agent.Agent
	store  *memstore.Store
	link   *memstore.Link // of the agent
	socket string
}

func newBed(t *testing.T, with ...func(*agent.Config)) *bed {
	b := &bed{TB: t, store: &memstore.Store{}, socket: filepath.Join(t.TempDir(), "s")}
	b.link = &memstore.Link{Store: b.store}
	c := agent.Config{Locks: table.Table{Store: b.link}, TableName: "locktable", MaxHolds: 1000, Host: "host", Log: slog.New(slog.DiscardHandler)}
	for _, f := range with {
		f(&c)
	}
	b.agent = agent.New(c)
	on, err := net.Listen("unix", b.socket)
	require.NoError(t, err)
	peers := agent.CountPeers(b.agent)
	server := b.agent.Serve(on)
	t.Cleanup(func() { // the connections have been closed
		b.link.Refuse(func(string) error { return nil })
		agent.EndAll(b.agent)
		assert.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, agent.Kept(b.agent, peers)) }, 30*time.Second, time.Millisecond)
		_ = server.Close()
	})
	return b
}

// said is one line, as a program reads it.
type said struct {
	Event  string
	Hold   string
	Now    map[string]int64
	Names  []string
	Token  int64
	Key    string
	Until  map[string]int64
	Left   int64 `json:"left_ms"`
	Reason string
	Detail string
	Fence  []map[string]any
	Record []map[string]any
	Leader *struct{ ID, Value string }
}

// stream is a response with lines.
type stream struct {
	*bed
	conn   net.Conn
	reader *bufio.Reader
	body   *bufio.Scanner
	status int
	lines  agent.Response
}

// open sends a request for a hold and reads the headers of the response. It uses HTTP/1.0, so that the body is not
// chunked.
func (b *bed) open(path string, headers ...string) *stream {
	conn, err := net.Dial("unix", b.socket)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\nHost: agent\r\n%s\r\n", path, strings.Join(append(headers, ""), "\r\n"))
	require.NoError(b, err)
	s := &stream{bed: b, conn: conn, reader: bufio.NewReader(conn)}
	require.NoError(b, conn.SetReadDeadline(time.Now().Add(patience)))
	r, err := http.ReadResponse(s.reader, nil)
	require.NoError(b, err)
	s.status, s.body = r.StatusCode, bufio.NewScanner(r.Body)
	s.body.Buffer(nil, 1<<20)
	return s
}

// next returns the next line. It reports false once the response has ended.
func (s *stream) next() (l said, ok bool) {
	for s.body.Scan() {
		if len(s.body.Bytes()) > 0 {
			require.NoError(s, json.Unmarshal(s.body.Bytes(), &l), s.body.Text())
			require.Empty(s, s.lines.Hears(l.Event))
			return l, true
		}
	}
	require.NoError(s, s.body.Err())
	return l, false
}

// reads returns the first line with one of the given events. It fails the test if the response ends before that.
func (s *stream) reads(events ...string) said {
	for {
		l, ok := s.next()
		require.True(s, ok, "the response ended before %v", events)
		if slices.Contains(events, l.Event) {
			return l
		}
	}
}

// ends reads the rest of the response, and fails the test if it contains lines other than until.
func (s *stream) ends() {
	for {
		l, ok := s.next()
		if !ok {
			return
		}
		require.Equal(s, "until", l.Event)
	}
}

// call sends a request that has a short response, and returns its status and body.
func (b *bed) call(method, path string, headers ...string) (int, map[string]any) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", b.socket)
	}}}
	r, err := http.NewRequest(method, "http://agent"+path, nil)
	require.NoError(b, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	require.NoError(b, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(b, err)
	var j map[string]any
	require.NoError(b, json.Unmarshal(body, &j), string(body))
	if answer.StatusCode >= 400 {
		assert.Equal(b, "application/problem+json", answer.Header.Get("Content-Type"))
		assert.NotEmpty(b, j["detail"])
		assert.EqualValues(b, answer.StatusCode, j["status"])
	}
	return answer.StatusCode, j
}

// holder returns the holder of a lock according to the table, or "" if there is none.
func (b *bed) holder(name string) string {
	row := b.store.Rows()[name]
	if row.Heartbeat.IsZero() {
		return ""
	}
	return row.Writer
}

func (b *bed) eventually(cond func() bool, what string) {
	require.Eventually(b, cond, patience, time.Millisecond, what)
}

// A lock is held from the line held until its release. The release is answered after its commit.
func TestALockIsHeldUntilItsRelease(t *testing.T) {
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=1s&label=job")
	require.Equal(t, http.StatusOK, s.status)
	hello := s.reads("hello")
	assert.Len(t, hello.Hold, 32)
	held := s.reads("held")
	assert.Equal(t, []string{"a"}, held.Names)
	assert.Regexp(t, fmt.Sprintf(`^host/%d/job.*/[0-9a-f]{16}$`, os.Getpid()), b.holder("a"))
	until := s.reads("until")
	assert.Greater(t, until.Until["boottime_ms"], held.Until["boottime_ms"])
	status, j := b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	assert.Equal(t, http.StatusOK, status, j)
	assert.Empty(t, b.holder("a"))
	s.ends()
	status, _ = b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	assert.Equal(t, http.StatusOK, status, "a second release says the same")
}

// The time until which a program may act is never later, by any clock, than the end of the lease in the table. It is
// given in whole milliseconds.
func TestUntilIsBeforeTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := time.Now()
	s := b.open("/v1/locks?name=a&lease=1s")
	hello := s.reads("hello")
	assert.LessOrEqual(t, before.UnixMilli(), hello.Now["unix_ms"])
	for range 5 {
		l := s.reads("held", "until")
		row := b.store.Rows()["a"]
		assert.Less(t, l.Until["unix_ms"], row.Heartbeat.Add(time.Second).UnixMilli()+1)
		assert.LessOrEqual(t, l.Left, int64(990))
		assert.Positive(t, l.Left)
		for clock, until := range l.Until {
			assert.Greater(t, until, hello.Now[clock], clock)
		}
	}
}

// The status of a request with wait=0 says whether it got the lock.
func TestWithoutWaitingTheStatusIsTheResult(t *testing.T) {
	b := newBed(t)
	for _, kind := range []string{"locks?", "semaphores?slots=1&", "elections?", "once?key=k&"} {
		t.Run(kind, func(t *testing.T) {
			taken, name := table.Table{Store: b.store}, kind[:4]
			hold(t, taken, name)
			hold(t, taken, name+"/slot/0000")
			status, j := b.call("POST", "/v1/"+kind+"wait=0&lease=1s&name="+name)
			assert.Equal(t, http.StatusConflict, status, j)
			assert.Equal(t, "busy", j["code"])
			s := b.open("/v1/" + kind + "wait=0&lease=1s&name=free-" + name)
			assert.Equal(t, http.StatusOK, s.status)
			s.reads("held")
		})
	}
}

// hold acquires a lock for another process, for one hour.
func hold(t *testing.T, locks table.Table, name string) table.Token {
	seen, err := locks.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := locks.Claim(t.Context(), "other", seen...)
	require.NoError(t, err)
	require.NoError(t, locks.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Hour, ID: "other", Kind: table.Elector}, name))
	return token
}

// All error responses have the same form and name the wrong value. None of these requests leaves a hold behind.
func TestBadRequestsSayWhatIsWrong(t *testing.T) {
	b := newBed(t, func(c *agent.Config) { c.Allow = []string{"ok/", "slot"} })
	for _, c := range []struct {
		method, path string
		status       int
		code, says   string
	}{
		{"POST", "/v1/locks", 400, "bad-parameter", "0 names"},
		{"POST", "/v1/locks?name=", 400, "bad-parameter", "empty"},
		{"POST", "/v1/locks?name=ok/a_1700000000000000", 400, "bad-parameter", "lease row"},
		{"POST", "/v1/locks?name=ok/%00", 400, "bad-parameter", "control characters"},
		{"POST", "/v1/locks?name=ok/%ff", 400, "bad-parameter", "UTF-8"},
		{"POST", "/v1/locks?name=ok/" + strings.Repeat("x", 5000), 400, "bad-parameter", "at most 4096"},
		{"POST", "/v1/locks?name=ok/a&name=ok/a", 400, "bad-parameter", "twice"},
		{"POST", "/v1/locks?name=other", 403, "name-not-allowed", "ok/"},
		{"POST", "/v1/locks?name=ok/a&colour=red", 400, "unknown-parameter", "colour"},
		{"POST", "/v1/locks?name=ok/a&priority=1", 400, "unknown-parameter", "priority"},
		{"POST", "/v1/locks?name=ok/a&lease=10", 400, "bad-parameter", "10s"},
		{"POST", "/v1/locks?name=ok/a&lease=1ms", 400, "bad-parameter", "100ms"},
		{"POST", "/v1/locks?name=ok/a&lease=1s&lease=2s", 400, "bad-parameter", "2 times"},
		{"POST", "/v1/locks?name=ok/a&wait=-1s", 400, "bad-parameter", "wait"},
		{"POST", "/v1/locks?name=ok/a&eof=maybe", 400, "bad-parameter", "release"},
		{"POST", "/v1/locks?name=ok/a&value=%ff", 400, "bad-parameter", "UTF-8"},
		{"POST", "/v1/elections?name=ok/a&name=ok/b", 400, "bad-parameter", "one"},
		{"POST", "/v1/elections?name=ok/a&priority=10", 400, "bad-parameter", "0 to 9"},
		{"POST", "/v1/semaphores?name=ok/a", 400, "bad-parameter", "slots"},
		{"POST", "/v1/semaphores?name=ok/a&slots=x", 400, "bad-parameter", "not a number"},
		{"POST", "/v1/once?name=ok/a", 400, "bad-parameter", "every="},
		{"POST", "/v1/once?name=ok/a&key=k&every=1h", 400, "bad-parameter", "key="},
		{"POST", "/v1/once?name=ok/a&key=k&offset=1h", 400, "bad-parameter", "offset="},
		{"POST", "/v1/once?name=ok/a&every=1500ms", 400, "bad-parameter", "whole seconds"},
		{"POST", "/v1/holds/0123/release", 404, "no-such-hold", "id"},
		{"GET", "/v1/holds/0123", 404, "no-such-hold", "id"},
		{"GET", "/v1/elections", 400, "bad-parameter", "empty"},
		{"GET", "/v1/leading?name=ok/a", 503, "not-leading", "ok/a"},
		{"POST", "/v1/release?name=ok/a", 400, "bad-parameter", "token="},
		{"POST", "/v1/groups?name=ok/a", 404, "no-such-path", "/v1/groups"},
		{"DELETE", "/v1/locks?name=ok/a", 404, "no-such-path", "DELETE"},
	} {
		t.Run(c.method+" "+c.path[:min(len(c.path), 60)], func(t *testing.T) {
			status, j := b.call(c.method, c.path)
			assert.Equal(t, c.status, status, j)
			assert.Equal(t, c.code, j["code"])
			assert.Contains(t, j["detail"], c.says)
		})
	}
	_, j := b.call("GET", "/v1/holds")
	assert.Empty(t, j["holds"])
	assert.Empty(t, b.store.Rows())
}

// Requests through a proxy are refused, because the proxy would be the peer of every program behind it.
func TestARequestThroughAProxyIsRefused(t *testing.T) {
	b := newBed(t)
	for _, header := range []string{"Via: 1.1 proxy", "Forwarded: for=10.0.0.1", "X-Forwarded-For: 10.0.0.1"} {
		status, j := b.call("POST", "/v1/locks?name=a", header)
		assert.Equal(t, http.StatusForbidden, status)
		assert.Equal(t, "proxied", j["code"])
	}
}

// A program can't wait for a lock that it already holds.
func TestAProgramAsksForALockOnce(t *testing.T) {
	b := newBed(t)
	b.open("/v1/locks?name=a&lease=1s").reads("held")
	for _, path := range []string{"/v1/locks?name=a", "/v1/locks?name=b&name=a", "/v1/elections?name=a"} {
		status, j := b.call("POST", path)
		assert.Equal(t, http.StatusConflict, status)
		assert.Equal(t, "already-held", j["code"])
	}
	permit := b.open("/v1/semaphores?name=s&slots=2&lease=1s").reads("held")
	assert.Regexp(t, `^s/slot/000[01]$`, permit.Names[0])
	b.open("/v1/semaphores?name=s&slots=2&lease=1s").reads("held")
}

// A limit on the number of holds keeps waiting programs from exhausting the agent. The existing holds are not affected. One
// program may have half of them.
func TestTooManyHoldsAreRefused(t *testing.T) {
	b := newBed(t, func(c *agent.Config) { c.MaxHolds = 6 })
	for i := range 3 {
		b.open(fmt.Sprintf("/v1/locks?name=%d&lease=1s", i)).reads("held")
	}
	status, j := b.call("POST", "/v1/locks?name=a")
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Equal(t, "too-many", j["code"])
}

// A program that closes its connection, or one direction of it, may still be working. The agent sends it lost, but no
// other program gets the lock until the lease has expired.
func TestAClosedConnectionDoesNotReleaseTheLock(t *testing.T) {
	t.Parallel()
	for how, closing := range map[string]func(net.Conn) error{
		"half":  func(c net.Conn) error { return c.(*net.UnixConn).CloseWrite() },
		"whole": net.Conn.Close,
		"whole, after one byte more": func(c net.Conn) error {
			_, _ = c.Write([]byte("x"))
			return c.Close()
		},
	} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t)
			s := b.open("/v1/locks?name=a&lease=2s")
			hello := s.reads("hello")
			held := s.reads("held")
			require.NoError(t, closing(s.conn))
			if how == "half" {
				lost := s.reads("lost")
				assert.Equal(t, "closed", lost.Reason)
			}
			next := b.open("/v1/locks?name=a&lease=500ms").reads("held")
			assert.GreaterOrEqual(t, time.Now().UnixMilli(), held.Until["unix_ms"])
			assert.Greater(t, next.Token, held.Token)
			_, j := b.call("GET", "/v1/holds/"+hello.Hold)
			assert.Equal(t, "lost", j["state"])
			status, j := b.call("POST", "/v1/holds/"+hello.Hold+"/release")
			assert.Equal(t, http.StatusGone, status)
			assert.Equal(t, "lost", j["code"])
		})
	}
}

// If a program has asked for eof=release, closing its connection releases its lock, and the next program gets the lock
// immediately.
func TestWithEOFReleaseTheEndOfTheStreamReleasesTheLock(t *testing.T) {
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=1h&eof=release")
	s.reads("held")
	require.NoError(t, s.conn.Close())
	b.open("/v1/locks?name=a&lease=1h").reads("held")
}

// If a program has asked for stall= and does not read for that long, it loses its lock, and the agent sends no more
// heartbeats for it.
func TestAProgramThatDoesNotReadLosesItsLock(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=2s&stall=600ms")
	hello := s.reads("hello")
	s.reads("held") // and no line after that
	b.eventually(func() bool { return b.holder("a") != "" }, "it is held")
	b.eventually(func() bool {
		_, j := b.call("GET", "/v1/holds/"+hello.Hold)
		return j["state"] == "lost"
	}, "it is lost")
	b.open("/v1/locks?name=a&lease=400ms").reads("held")
	l := s.reads("lost")
	assert.Equal(t, "stalled", l.Reason)
}

// A program that reads late still gets the last until and the last of every other event, however many lines it has
// missed.
func TestAProgramThatReadsLateKeepsItsLock(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=1s")
	s.reads("held")
	time.Sleep(3 * time.Second) // the test needs time to pass
	l := s.reads("until")
	for time.Until(time.UnixMilli(l.Until["unix_ms"])) <= 0 {
		l = s.reads("until")
	}
	assert.NotEmpty(t, b.holder("a"))
}

// The loss of a superseded lock is noticed at the next heartbeat. No other program of this agent gets the lock until
// the last until has passed.
func TestALostLockIsBarredUntilTheLastPromise(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=3s")
	held := s.reads("held")
	key := held.Fence[0]["p1"].(string)
	require.NoError(t, b.store.Commit(t.Context(), "operator", []table.Write{
		{Kind: table.Delete, Name: key}, {Kind: table.Update, Name: "a", Set: []table.Cell{{Column: table.ColHeartbeat}, {Column: table.ColWriter}, {Column: table.ColToken, Value: table.Now}}}}))
	lost := s.reads("lost")
	assert.Equal(t, "superseded", lost.Reason)
	last := held.Until["unix_ms"]
	b.open("/v1/locks?name=a&lease=3s").reads("held")
	assert.GreaterOrEqual(t, time.Now().UnixMilli(), last)
}

// A released lock is not barred, although its program was promised a whole lease.
func TestTheNextProgramOfAnAgentHasAReleasedLockAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=10s")
	id := s.reads("hello").Hold
	s.reads("held")
	status, j := b.call("POST", "/v1/holds/"+id+"/release")
	require.Equal(t, http.StatusOK, status, j)
	released := time.Now()
	b.open("/v1/locks?name=a&lease=10s").reads("held")
	assert.Less(t, time.Since(released), 5*time.Second)
}

// While Spanner can't be reached, the program gets a warning. When the lease ends, it loses its lock.
func TestAnOutageIsJeopardyAndThenALoss(t *testing.T) {
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=3s")
	s.reads("held")
	b.link.Refuse(func(string) error { return memstore.ErrCut })
	s.reads("jeopardy")
	assert.Equal(t, "expired", s.reads("lost").Reason)
	s.ends()
}

// A request stops waiting after its time limit, and leaves nothing behind.
func TestAWaitEndsWithItsTime(t *testing.T) {
	b := newBed(t)
	hold(t, table.Table{Store: b.store}, "a")
	for _, kind := range []string{"locks?", "elections?", "once?key=k&"} {
		s := b.open("/v1/" + kind + "name=a&lease=1s&wait=200ms")
		s.reads("timeout")
		s.ends()
	}
	b.eventually(func() bool {
		_, j := b.call("GET", "/v1/holds")
		return len(j["holds"].([]any)) == 0
	}, "nothing is left behind")
}

// Work that is done once is repeated until it has been done, and never again after that.
func TestOnceRunsUntilItIsDone(t *testing.T) {
	b := newBed(t)
	for _, how := range []string{"release", "done"} {
		s := b.open("/v1/once?name=a&key=v1&lease=1s")
		hello, held := s.reads("hello"), s.reads("held")
		assert.Equal(t, "v1", held.Key)
		assert.Len(t, held.Record, 2)
		status, j := b.call("POST", "/v1/holds/"+hello.Hold+"/"+how)
		assert.Equal(t, http.StatusOK, status, j)
	}
	s := b.open("/v1/once?name=a&key=v1&lease=1s")
	s.reads("done")
	s.ends()
	status, j := b.call("POST", "/v1/once?name=a&key=v1&wait=0")
	assert.Equal(t, http.StatusConflict, status)
	assert.Equal(t, "done", j["code"])
	status, j = b.call("POST", "/v1/once?name=a&key=v0&wait=0")
	assert.Equal(t, http.StatusConflict, status)
	assert.Equal(t, "passed", j["code"])
}

// If a lock has been released, it is too late to record its key as done, and the answer says so.
func TestAReleasedKeyCannotBeDone(t *testing.T) {
	b := newBed(t)
	s := b.open("/v1/once?name=a&key=v1&lease=1s")
	hello := s.reads("hello")
	s.reads("held")
	status, _ := b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	assert.Equal(t, http.StatusOK, status)
	status, j := b.call("POST", "/v1/holds/"+hello.Hold+"/done")
	assert.Equal(t, http.StatusGone, status)
	assert.Equal(t, "lost", j["code"])
	s = b.open("/v1/once?name=a&key=v1&lease=1s")
	hello = s.reads("hello")
	s.reads("held")
	for _, how := range []string{"done", "done", "release"} {
		status, _ = b.call("POST", "/v1/holds/"+hello.Hold+"/"+how)
		assert.Equal(t, http.StatusOK, status)
	}
}

// A waiting candidate reads who leads. A leader that is asked to step down reads stop, and keeps its lock until it
// releases it. Then the next candidate leads.
func TestALeaderStepsDown(t *testing.T) {
	b := newBed(t)
	hold(t, table.Table{Store: b.store}, "other")
	assert.Equal(t, "other", b.open("/v1/elections?name=other&lease=1s").reads("leader").Leader.ID)

	s := b.open("/v1/elections?name=a&lease=1s&handover=true&value=http://10.0.0.1")
	hello := s.reads("hello")
	s.reads("held")
	status, _ := b.call("GET", "/v1/leading?name=a")
	assert.Equal(t, http.StatusOK, status)
	_, j := b.call("GET", "/v1/elections?name=a")
	assert.Equal(t, "http://10.0.0.1", j["leader"].(map[string]any)["value"])
	status, _ = b.call("POST", "/v1/holds/"+hello.Hold+"/stepdown")
	assert.Equal(t, http.StatusAccepted, status)
	assert.Equal(t, "stepdown", s.reads("stop").Reason)
	assert.NotEmpty(t, b.store.Rows()["a"].Heartbeat, "it is held")
	status, j = b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	assert.Equal(t, http.StatusOK, status, j)
	_, j = b.call("GET", "/v1/elections?name=a")
	assert.Nil(t, j["leader"])
}

// A draining agent asks every program to stop, gives out no more locks, and waits for the programs to release theirs.
func TestADrainingAgentWaitsForItsPrograms(t *testing.T) {
	b := newBed(t)
	hold(t, table.Table{Store: b.store}, "taken")
	s, waiter := b.open("/v1/locks?name=a&lease=1s"), b.open("/v1/locks?name=taken&lease=1s")
	hello := s.reads("hello")
	s.reads("held")
	waiter.reads("waiting")
	drained := make(chan struct{})
	go func() { b.agent.Drain(context.Background(), "agent-stops"); close(drained) }()
	assert.Equal(t, "agent-stops", s.reads("stop").Reason)
	refused := waiter.reads("refused")
	assert.Equal(t, "stopping", refused.Reason)
	assert.Equal(t, "this request was asked to stop waiting: agent-stops", refused.Detail, "not that the program went away")
	status, j := b.call("POST", "/v1/locks?name=b")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "stopping", j["code"])
	select {
	case <-drained:
		assert.Fail(t, "a program still holds its lock")
	default:
	}
	b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	select {
	case <-drained:
	case <-time.After(patience):
		assert.Fail(t, "it has not drained")
	}
}

// A program whose agent was killed can release its lock through another agent, if it knows the id of its hold.
func TestTheLockOfADeadAgentIsReleasedByItsOwner(t *testing.T) {
	first := newBed(t)
	s := first.open("/v1/locks?name=a&lease=1h")
	hello, held := s.reads("hello"), s.reads("held")
	second := newBed(t, func(c *agent.Config) { c.Locks = table.Table{Store: first.store} })
	path := fmt.Sprintf("/v1/release?name=a&token=%d&hold=", held.Token)
	status, j := second.call("POST", path+strings.Repeat("0", 32))
	assert.Equal(t, http.StatusNotFound, status, j)
	assert.NotEmpty(t, first.holder("a"))
	status, j = second.call("POST", path+hello.Hold)
	assert.Equal(t, http.StatusOK, status, j)
	assert.Empty(t, first.holder("a"))
	status, _ = second.call("POST", path+hello.Hold)
	assert.Equal(t, http.StatusGone, status)
}

// The metrics count current holds by state, and past holds by outcome.
func TestTheAgentsMetrics(t *testing.T) {
	b := newBed(t)
	s := b.open("/v1/locks?name=a&lease=1s")
	hello := s.reads("hello")
	s.reads("held")
	metrics := func() string {
		conn, err := net.Dial("unix", b.socket)
		require.NoError(t, err)
		defer conn.Close()
		_, _ = fmt.Fprint(conn, "GET /metrics HTTP/1.0\r\n\r\n")
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, metrics(), `spindle_agent_holds{state="held"} 1`)
	assert.Contains(t, metrics(), `spindle_agent_held{spindle_lock="a"} 1`)
	probes := httptest.NewRecorder()
	b.agent.ReadOnly().ServeHTTP(probes, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	assert.Contains(t, probes.Body.String(), `spindle_agent_held{spindle_lock="a"} 1`, "the metrics listener is for the agent's operators")
	b.call("POST", "/v1/holds/"+hello.Hold+"/release")
	b.eventually(func() bool {
		return strings.Contains(metrics(), `spindle_agent_holds_ended_total{outcome="released"} 1`)
	}, "it has ended")
}
