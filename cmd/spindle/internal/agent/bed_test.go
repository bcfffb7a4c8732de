package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// patience is how long tests wait for an event that must come.
const patience = 5 * time.Minute

// everyKindOfLock lists the requests for locks that can be free: each begins with the lock a.
var everyKindOfLock = []string{"locks?name=a", "locks?name=a&name=b", "semaphores?name=a&slots=1", "once?name=a&key=k", "once?name=a&every=24h", "elections?name=a", "elections?name=a&priority=0&handover=true"}

// bed is an agent that keeps its lock table in memory, and what its programs send it: over a socket and in real time, or in
// virtual time.
type bed struct {
	testing.TB
	agent  *Agent
	peers  *peers
	server *http.Server
	store  *memstore.Store
	link   *memstore.Link                    // of the agent
	step   atomic.Pointer[func(string)]      // called before each request to Spanner; may block
	dial   func(program string) (c net.Conn) // connects a program
	settle func()                            // returns when all that follows without time has happened
	wires  []*wire                           // in virtual time
	socket string                            // in real time
}

// newBed returns a bed whose agent is not served yet.
func newBed(t testing.TB, with ...func(*Config)) *bed {
	b := &bed{TB: t, store: &memstore.Store{}}
	b.link = &memstore.Link{Store: b.store}
	b.before(func(string) {})
	store := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		(*b.step.Load())(step)
		return call(ctx, b.link)
	})
	c := Config{Locks: table.Table{Store: store}, TableName: "locktable", MaxHolds: 1000, Host: "host", Log: slog.New(slog.DiscardHandler)}
	for _, f := range with {
		f(&c)
	}
	b.agent = New(c)
	return b
}

// onSocket returns a bed in real time. After the test, its agent has nothing left of its programs.
func onSocket(t testing.TB, with ...func(*Config)) *bed {
	b := newBed(t, with...)
	b.socket = filepath.Join(t.TempDir(), "s")
	on, err := net.Listen("unix", b.socket)
	require.NoError(t, err)
	b.dial = func(string) net.Conn {
		c, err := net.Dial("unix", b.socket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.settle = func() {}
	b.peers, b.server = countPeers(b.agent), b.agent.Serve(on)
	t.Cleanup(func() { // the connections have been closed
		for _, h := range b.agent.all() {
			h.put(event{what: asked})
		}
		assert.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, kept(b.agent, b.peers)) }, 30*time.Second, time.Millisecond)
		_ = b.server.Close()
	})
	return b
}

// among runs a test in virtual time. After it, all programs end, and the agent has nothing left of them.
func among(t *testing.T, maxHolds int, test func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *Config) { c.MaxHolds = maxHolds })
		b.serve()
		test(b)
		b.ends()
	})
}

// serve serves the agent in virtual time.
func (b *bed) serve() {
	at := commandtest.NewPipes()
	b.agent.clocks = func() reading {
		ms := time.Now().UnixMilli()
		return reading{Boottime: ms, Monotonic: ms, Unix: ms}
	}
	b.agent.identify = func(c net.Conn) (process, *problem) { return newKnown(c.(far).program), nil }
	b.peers, b.server = countPeers(b.agent), b.agent.Serve(at)
	b.settle = synctest.Wait
	b.dial = func(program string) net.Conn {
		w, other := newWire(newProcess(program), func() {})
		b.wires = append(b.wires, w)
		at.Connect <- other
		return w
	}
}

// ends ends all programs, and checks that the agent has nothing left of them.
func (b *bed) ends() {
	b.before(func(string) {})
	b.link.Refuse(func(string) error { return nil })
	for _, w := range b.wires {
		w.exits()
		_ = w.Close()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.Empty(b, kept(b.agent, b.peers))
	_ = b.server.Close()
}

// before calls f before each request to Spanner from now on.
func (b *bed) before(f func(step string)) { b.step.Store(&f) }

// fakeProcess is a process in virtual time.
type fakeProcess struct {
	key    string
	exited chan struct{}
	once   sync.Once
}

func newProcess(key string) *fakeProcess { return &fakeProcess{key: key, exited: make(chan struct{})} }

func (p *fakeProcess) exits() { p.once.Do(func() { close(p.exited) }) }

// wire is a program's end of a connection in virtual time.
type wire struct {
	net.Conn
	process *fakeProcess
	closed  chan struct{} // closed or shut down for writing
	once    sync.Once
	unread  atomic.Int64
	lag     time.Duration // how late the agent is told that it was closed
}

// newWire returns both ends of a connection. The agent calls gate before it reads or writes.
func newWire(p *fakeProcess, gate func()) (*wire, far) {
	near, other := net.Pipe()
	w := &wire{Conn: near, process: p, closed: make(chan struct{})}
	return w, far{other, w, gate}
}

func (w *wire) Close() error {
	w.shutsDown()
	return w.Conn.Close()
}

func (w *wire) shutsDown() { w.once.Do(func() { close(w.closed) }) }

func (w *wire) exits() { w.process.exits() }

// far is the agent's end.
type far struct {
	net.Conn
	program *wire
	gate    func()
}

func (f far) Read(b []byte) (int, error) {
	f.gate()
	return f.Conn.Read(b)
}

func (f far) Write(b []byte) (int, error) {
	f.gate()
	f.program.unread.Add(int64(len(b)))
	defer f.program.unread.Add(-int64(len(b)))
	return f.Conn.Write(b)
}

// known is what the agent knows of a wire's program, until it closes it.
type known struct {
	*wire
	forgotten chan struct{}
}

func newKnown(w *wire) known { return known{w, make(chan struct{})} }

// somebody returns a program of whose connection the test needs nothing.
func somebody() known {
	return newKnown(&wire{process: newProcess("a"), closed: make(chan struct{})})
}

// asks returns the hold of somebody's request for the lock a with a lease of a minute.
func asks(t *testing.T, a *Agent, r request) *hold {
	t.Helper()
	r.names, r.lease = []string{"a"}, time.Minute
	h, bad := a.newHold(&r, somebody())
	require.Nil(t, bad)
	return h
}

func (k known) Describe()          {}
func (k known) Who() peer.Identity { return peer.Identity{UID: 1, PID: 1, Key: k.process.key} }
func (k known) Watch(closed, exited func()) error {
	for c, f := range map[chan struct{}]func(){k.closed: closed, k.process.exited: exited} {
		go func() {
			select {
			case <-c:
				if c == k.closed && k.lag > 0 {
					time.Sleep(k.lag)
				}
				f()
			case <-k.forgotten:
			}
		}()
	}
	return nil
}
func (k known) HasClosed() bool { return happened(k.closed) }
func (k known) Unread() int     { return int(k.unread.Load()) }
func (k known) Close()          { close(k.forgotten) }

func happened(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// said is a line, as a program reads it.
type said struct {
	Event, Hold, Reason, Detail, Key string
	Names                            []string
	Token                            int64
	Now, Until                       reading
	Left                             int64 `json:"left_ms"`
	Fence                            []fenceJSON
	Record                           []map[string]any
	Leader                           *struct{ ID, Value string }
}

// stream is a connection of a program, and the response that comes over it.
type stream struct {
	testing.TB
	net.Conn
	status   int
	header   http.Header
	body     []byte        // unless the response has lines
	answered chan struct{} // closed when the above are set
	lines    chan said     // closed when the response has ended
	heard    response
}

// asks sends a request, and returns when all that follows from it without time has happened.
func (b *bed) asks(program, request string, headers ...string) *stream {
	s := &stream{TB: b.TB, Conn: b.dial(program), answered: make(chan struct{}), lines: make(chan said, 100)}
	go s.receive()
	_, err := fmt.Fprintf(s, "%s HTTP/1.1\r\nHost: agent\r\n%s\r\n", request, strings.Join(append(headers, ""), "\r\n"))
	require.NoError(b, err)
	b.settle()
	return s
}

func (s *stream) receive() {
	defer close(s.lines)
	r, err := http.ReadResponse(bufio.NewReader(s.Conn), nil)
	if err != nil {
		close(s.answered)
		return
	}
	s.status, s.header = r.StatusCode, r.Header
	if r.Header.Get("Content-Type") != "application/x-ndjson" {
		s.body, _ = io.ReadAll(r.Body)
	}
	close(s.answered)
	for lines := bufio.NewReader(r.Body); ; {
		text, err := lines.ReadBytes('\n')
		var l said
		if err == nil && json.Unmarshal(text, &l) == nil {
			s.lines <- l
		}
		if err != nil {
			return
		}
	}
}

// wait returns the status of a response.
func (s *stream) wait() (status int) {
	select {
	case <-s.answered:
	case <-time.After(patience):
		require.Fail(s, "no answer")
	}
	return s.status
}

// answer returns the status and the body of a response without lines.
func (s *stream) answer() (status int, j map[string]any) {
	s.wait()
	require.NoError(s, json.NewDecoder(bytes.NewReader(s.body)).Decode(&j), string(s.body))
	if s.status >= 400 {
		assert.Equal(s, "application/problem+json", s.header.Get("Content-Type"))
		assert.NotEmpty(s, j["detail"])
		assert.Equal(s, []any{float64(s.status), http.StatusText(s.status)}, []any{j["status"], j["title"]})
	}
	return s.status, j
}

// call sends a request on a connection of its own, and returns its status and body.
func (b *bed) call(program, request string, headers ...string) (int, map[string]any) {
	s := b.asks(program, request, headers...)
	defer s.Close()
	return s.answer()
}

// metrics returns the metrics, as a program reads them.
func (b *bed) metrics(program string) string {
	s := b.asks(program, "GET /metrics")
	s.wait()
	return string(s.body)
}

// next returns the next line. It reports false once the response has ended.
func (s *stream) next() (l said, ok bool) {
	select {
	case l, ok = <-s.lines:
	case <-time.After(patience):
		require.Fail(s, "no line")
	}
	if ok {
		require.Empty(s, s.heard.hears(l.Event))
	}
	return l, ok
}

// reads returns the first line with the event. It has the id of the hold, too.
func (s *stream) reads(event string) said {
	id := ""
	for {
		l, ok := s.next()
		require.True(s, ok, "the response ended before %v: %s", event, s.body)
		if id += l.Hold; l.Event == event {
			l.Hold = id
			return l
		}
	}
}

// ends reads the rest of the response, and fails the test if it contains lines other than until.
func (s *stream) ends() {
	for l, ok := s.next(); ok; l, ok = s.next() {
		require.Equal(s, "until", l.Event)
	}
}

// holder returns the holder of a lock according to the table, or "" if there is none.
func (b *bed) holder(name string) string {
	row := b.store.Rows()[name]
	if row.Heartbeat.IsZero() {
		return ""
	}
	return row.Writer
}

// take acquires locks for another process, for one hour.
func (b *bed) take(names ...string) {
	locks := table.Table{Store: b.store}
	for _, name := range names {
		seen, err := locks.Observe(b.Context(), name)
		require.NoError(b, err)
		token, err := locks.Claim(b.Context(), "other", seen...)
		require.NoError(b, err)
		require.NoError(b, locks.Confirm(b.Context(), token, table.LeaseRecord{Lease: time.Hour, ID: "other", Kind: table.Elector}, name))
	}
}

// breaks takes a lock from its holder, as an operator does.
func (b *bed) breaks(l said) {
	require.NoError(b, table.Table{Store: b.store}.Break(b.Context(), table.Token(l.Token), l.Names[0]))
}
