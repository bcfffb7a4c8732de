package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// crowd is an agent in virtual time and the connections of its programs.
type crowd struct {
	*testing.T
	agent *Agent
	ears  chan net.Conn
	conns []*wire
	store memstore.Store
	step  atomic.Pointer[func(step string)] // called before each request to Spanner; may block
}

// wire is a program's end of a connection. It is also what the agent knows of that program.
type wire struct {
	net.Conn
	crowd  *crowd
	key    string
	gone   chan struct{} // closed with the connection
	exits  chan struct{}
	hangUp func()
	reader *bufio.Reader
}

// far is the agent's end.
type far struct {
	net.Conn
	*wire
}

func (f far) Read(b []byte) (int, error)  { return f.Conn.Read(b) }
func (f far) Write(b []byte) (int, error) { return f.Conn.Write(b) }
func (f far) Close() error                { return f.Conn.Close() }
func (f far) LocalAddr() net.Addr         { return &net.UnixAddr{} }
func (f far) RemoteAddr() net.Addr        { return &net.UnixAddr{} }
func (f far) SetDeadline(t time.Time) error {
	return f.Conn.SetDeadline(t)
}
func (f far) SetReadDeadline(t time.Time) error  { return f.Conn.SetReadDeadline(t) }
func (f far) SetWriteDeadline(t time.Time) error { return f.Conn.SetWriteDeadline(t) }

// known is the evidence about a wire's program.
type known struct{ *wire }

func (k known) Describe()               {}
func (k known) Who() peer.Identity      { return peer.Identity{UID: 1, PID: 1, Key: k.key} }
func (k known) Watch() error            { return nil }
func (k known) Closed() <-chan struct{} { return k.gone }
func (k known) Exited() <-chan struct{} { return k.exits }
func (k known) Unread() int             { return 0 }
func (k known) Close()                  {}
func (k known) HasClosed() bool {
	select {
	case <-k.gone:
		return true
	default:
		return false
	}
}

func (c *crowd) Accept() (net.Conn, error) {
	if conn, ok := <-c.ears; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (c *crowd) Close() error   { return nil }
func (c *crowd) Addr() net.Addr { return &net.UnixAddr{} }

// among runs a test in virtual time. After it, all programs have ended, and the agent has nothing left of them.
func among(t *testing.T, maxHolds int, test func(c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, ears: make(chan net.Conn, 10000)}
		c.before(func(string) {})
		store := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			(*c.step.Load())(step)
			return call(ctx, &c.store)
		})
		c.agent = New(Config{Locks: table.Table{Store: store}, TableName: "locktable", MaxHolds: maxHolds, Host: "host", Log: slog.New(slog.DiscardHandler)})
		c.agent.identify = func(conn net.Conn) (process, *problem) { return known{conn.(far).wire}, nil }
		peers, server := CountPeers(c.agent), c.agent.Serve(c)
		test(c)
		c.before(func(string) {})
		for _, w := range c.conns {
			close(w.exits)
			w.hangUp()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, Kept(c.agent, peers))
		close(c.ears)
		_ = server.Close()
	})
}

// before calls f before each request to Spanner from now on.
func (c *crowd) before(f func(step string)) { c.step.Store(&f) }

// dial connects a program.
func (c *crowd) dial(program string) *wire {
	near, other := net.Pipe()
	w := &wire{Conn: near, crowd: c, key: program, gone: make(chan struct{}), exits: make(chan struct{}), reader: bufio.NewReader(near)}
	w.hangUp = sync.OnceFunc(func() { close(w.gone); _ = near.Close() })
	c.conns = append(c.conns, w)
	c.ears <- far{other, w}
	return w
}

// asks sends a request, and returns when all that follows from it without time has happened.
func (c *crowd) asks(program, request string) *wire {
	w := c.dial(program)
	_, err := fmt.Fprintf(w, "%s HTTP/1.1\r\nHost: agent\r\n\r\n", request)
	require.NoError(c, err)
	synctest.Wait()
	return w
}

// answer reads the status of a response.
func (w *wire) answer() *http.Response {
	require.NoError(w.crowd, w.SetReadDeadline(time.Now().Add(time.Minute)))
	r, err := http.ReadResponse(w.reader, nil)
	require.NoError(w.crowd, err)
	return r
}

// reads reads a response until a line has the event. It returns all lines in one.
func (w *wire) reads(event string) (l said) {
	var all Response
	lines := bufio.NewScanner(w.answer().Body)
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			require.NoError(w.crowd, json.Unmarshal(lines.Bytes(), &l))
			assert.Empty(w.crowd, all.Hears(l.Event))
		}
		if l.Event == event {
			w.drains()
			return l
		}
	}
	require.Fail(w.crowd, "the response ended before "+event)
	return l
}

// drains reads everything from now on.
func (w *wire) drains() { go func() { _, _ = io.Copy(io.Discard, w.reader) }() }

// refuses checks that a program's request for a hold is refused, and that the answer says when to ask again.
func (c *crowd) refuses(program, name string) {
	r := c.asks(program, "POST /v1/locks?name="+name).answer()
	assert.Equal(c, http.StatusTooManyRequests, r.StatusCode)
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	assert.NoError(c, err)
	assert.Positive(c, seconds)
}

// A program has half of the holds at most, so others always find room. Programs that can't be told apart have all.
func TestAProgramHasHalfOfTheHolds(t *testing.T) {
	among(t, 10, func(c *crowd) {
		for i := range 5 {
			c.asks("a", fmt.Sprint("POST /v1/locks?name=a", i)).reads("held")
		}
		c.refuses("a", "a5")
		for i := range 5 {
			c.asks("b", fmt.Sprint("POST /v1/locks?name=b", i)).reads("held")
		}
		c.refuses("c", "c")
	})
	among(t, 10, func(c *crowd) {
		for i := range 10 {
			c.asks("", fmt.Sprint("POST /v1/locks?name=", i)).reads("held")
		}
		c.refuses("", "10")
	})
}

// A request counts until its last request to Spanner has been answered, even if its client has hung up long before.
func TestARequestCountsUntilItsCleanUpHasEnded(t *testing.T) {
	for _, blocked := range []string{"confirm", "release"} {
		among(t, 2, func(c *crowd) {
			answer := make(chan struct{})
			c.before(func(step string) {
				if step == blocked {
					<-answer
				}
				time.Sleep(time.Millisecond)
			})
			w := c.asks("a", "POST /v1/locks?name=a&lease=1h")
			time.Sleep(2500 * time.Microsecond) // it is being confirmed
			w.hangUp()
			time.Sleep(time.Second)
			assert.Empty(t, c.agent.all(), "the hold is over")
			c.refuses("a", "b")
			close(answer)
			time.Sleep(time.Second)
			c.asks("a", "POST /v1/locks?name=b").reads("held")
		})
	}
}

// At most 32 claims of one program are in flight, so a program with one claim does not wait for a hundred of the others.
// Heartbeats and releases wait for none of it.
func TestAProgramHasAFewClaimsInFlight(t *testing.T) {
	among(t, 1000, func(c *crowd) {
		id := c.asks("holder", "POST /v1/locks?name=held&lease=3s").reads("held").Hold
		const took = 2 * time.Second
		var beats, claims atomic.Int64
		c.before(func(step string) {
			switch step {
			case "claim":
				claims.Add(1)
				time.Sleep(took)
			case "heartbeat":
				beats.Add(1)
			}
		})
		start := time.Now()
		for i := range 100 {
			c.asks("a", fmt.Sprintf("POST /v1/locks?name=a%d&lease=1h", i)).drains()
		}
		assert.EqualValues(t, 32, claims.Load())
		for i := range 100 {
			c.asks("b", fmt.Sprintf("POST /v1/locks?name=b%d&lease=1h", i)).drains()
		}
		assert.EqualValues(t, 64, claims.Load())
		healthy := c.asks("healthy", "POST /v1/locks?name=free&lease=1h")
		assert.EqualValues(t, 65, claims.Load())
		healthy.reads("held")
		assert.Equal(t, took, time.Since(start))
		assert.Positive(t, beats.Load())
		r := c.asks("holder", "POST /v1/holds/"+id+"/release").answer()
		assert.Equal(t, http.StatusOK, r.StatusCode)
		assert.Equal(t, took, time.Since(start))
	})
}

// A request that waits for its program's turn waits no longer than it asked to, or than its client. It claims nothing then.
func TestARequestWaitsForItsTurnAsLongAsItAskedTo(t *testing.T) {
	among(t, 1000, func(c *crowd) {
		answer := make(chan struct{})
		var claims atomic.Int64
		c.before(func(step string) {
			if step == "claim" {
				claims.Add(1)
				<-answer
			}
		})
		for i := range 32 {
			c.asks("a", fmt.Sprintf("POST /v1/locks?name=a%d&lease=1h", i)).drains()
		}
		start := time.Now()
		gone, last := c.asks("a", "POST /v1/locks?name=gone&lease=1h"), c.asks("a", "POST /v1/locks?name=last&lease=1h")
		c.asks("a", "POST /v1/locks?name=timed&lease=1h&wait=100ms").reads("timeout")
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		gone.hangUp()
		synctest.Wait()
		assert.EqualValues(t, 32, claims.Load())
		close(answer)
		last.reads("held")
		assert.EqualValues(t, 33, claims.Load())
	})
}

// Waiters write their tickets in turn, too, and a waiter for a busy lock has no place after that: however many of them a
// program has, it gets a free lock at once.
func TestWaitersForBusyLocksLeaveThePlaceToOthers(t *testing.T) {
	among(t, 1000, func(c *crowd) {
		var mu sync.Mutex
		tickets, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			tickets += n
			most = max(most, tickets)
		}
		c.before(func(step string) {
			if step == "queue" {
				count(1)
				time.Sleep(time.Millisecond)
				count(-1)
			}
		})
		for i := range 100 {
			c.asks("a", fmt.Sprintf("POST /v1/locks?name=%d&lease=1h", i)).reads("held")
		}
		for i := range 100 {
			c.asks("b", fmt.Sprintf("POST /v1/locks?name=%d&lease=1h", i)).drains()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 32, most)
		start := time.Now()
		c.asks("b", "POST /v1/locks?name=free&lease=1h").reads("held")
		assert.Less(t, time.Since(start), 50*time.Millisecond, "a place that is kept is given up after a second") // a waiter may just renew its ticket
	})
}

// Requests begin in turn. One that waits for something lets others begin, and so does a connection that sends nothing.
func TestRequestsBeginInTurn(t *testing.T) {
	among(t, 1000, func(c *crowd) {
		c.before(func(step string) { time.Sleep(time.Second) })
		for range 100 {
			c.dial("a")
			c.asks("a", "POST /v1/locks?wait=0&lease=1h&name="+fmt.Sprint(len(c.conns)))
		}
		assert.Zero(t, c.agent.beginnings.busy, "all have begun")
		for range 100 { // and these never end to begin
			w := c.dial("a")
			_, _ = w.Write([]byte("GET /livez HTTP/1.1\r\n"))
		}
		synctest.Wait()
		assert.Equal(t, 32, c.agent.beginnings.busy)
		start := time.Now()
		assert.Equal(t, http.StatusOK, c.asks("b", "GET /livez").answer().StatusCode)
		assert.Zero(t, time.Since(start))
	})
}

// A program gets its turn, even if two others always have more requests than there is room for.
func TestProgramsAreServedInTurn(t *testing.T) {
	turns, waits := turns{all: 2}, map[string][]*place{}
	for range 3 {
		for _, busy := range []string{"a", "b"} {
			waits[busy] = append(waits[busy], turns.take(busy))
		}
	}
	last := turns.take("c")
	waits["a"][0].leave()
	waits["b"][0].leave()
	waits["a"][1].leave()
	select {
	case <-last.turn:
	default:
		t.Error("it still waits")
	}
}

// A request that gives up its wait for a turn leaves no room that was not there, and a program that has turns is not forgotten.
func TestWhoGivesUpItsWaitFreesNoTurn(t *testing.T) {
	has := func(p *place) bool {
		select {
		case <-p.turn:
			return true
		default:
			return false
		}
	}
	turns := turns{all: 4}
	first, second := turns.take("a"), turns.take("a")
	for range 3 {
		turns.take("a").leave()
	}
	third := turns.take("a")
	assert.True(t, has(first) && has(second))
	assert.False(t, has(third), "a program has more than half")
	first.leave()
	assert.True(t, has(third))
	b, c := turns.take("b"), turns.take("c")
	assert.True(t, has(b) && has(c))
	assert.False(t, has(turns.take("d")), "there are more than four")
}

// The connections of a program are limited, so that it can't use up the agent's descriptors. The others are not affected.
func TestAProgramsConnectionsAreLimited(t *testing.T) {
	among(t, 10, func(c *crowd) {
		for range 10 {
			c.dial("a")
		}
		synctest.Wait()
		c.refuses("a", "a")
		assert.Equal(t, http.StatusOK, c.asks("b", "GET /livez").answer().StatusCode)
		c.conns[0].hangUp()
		synctest.Wait()
		assert.Equal(t, http.StatusOK, c.asks("a", "GET /livez").answer().StatusCode)
	})
}

// A lock that a program has asked for is refused to its other requests, until it has given up the first one.
func TestALockIsRefusedUntilTheFirstRequestIsGivenUp(t *testing.T) {
	among(t, 100, func(c *crowd) {
		first := c.asks("a", "POST /v1/locks?name=x&name=y&lease=1h&eof=release")
		first.reads("held")
		for _, names := range []string{"name=x", "name=z&name=y"} {
			assert.Equal(t, http.StatusConflict, c.asks("a", "POST /v1/locks?lease=1h&"+names).answer().StatusCode)
		}
		c.asks("b", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		c.asks("", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		c.asks("", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		first.hangUp()
		c.asks("a", "POST /v1/locks?name=y&lease=1h").reads("held")
	})
	among(t, 100, func(c *crowd) {
		first := c.asks("a", "POST /v1/locks?name=x&lease=1h&eof=release")
		first.reads("held")
		answer := make(chan struct{})
		c.before(func(step string) {
			if step == "release" {
				<-answer
			}
		})
		first.hangUp()
		second := c.asks("a", "POST /v1/locks?name=x&lease=1h")
		close(answer)
		second.reads("held")
		assert.Equal(t, http.StatusConflict, c.asks("a", "POST /v1/locks?name=x&lease=1h").answer().StatusCode, "the end of the first request does not give up the second")
	})
}
