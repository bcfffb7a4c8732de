package agent

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// refuses checks that a program's request for a hold is refused, and that the answer says when to ask again.
func (b *bed) refuses(program, name string) {
	s := b.asks(program, "POST /v1/locks?name="+name)
	assert.Equal(b, http.StatusTooManyRequests, s.wait())
	seconds, err := strconv.Atoi(s.header.Get("Retry-After"))
	assert.NoError(b, err)
	assert.Positive(b, seconds)
}

// A program has half of the holds at most, so others always find room. Programs that can't be told apart have all.
func TestAProgramHasHalfOfTheHolds(t *testing.T) {
	among(t, 10, func(b *bed) {
		for i := range 5 {
			b.asks("a", fmt.Sprint("POST /v1/locks?name=a", i)).reads("held")
		}
		b.refuses("a", "a5")
		for i := range 5 {
			b.asks("b", fmt.Sprint("POST /v1/locks?name=b", i)).reads("held")
		}
		b.refuses("c", "c")
	})
	among(t, 10, func(b *bed) {
		for i := range 10 {
			b.asks("", fmt.Sprint("POST /v1/locks?name=", i)).reads("held")
		}
		b.refuses("", "10")
	})
}

// A request counts until its last request to Spanner has been answered, even if its client has hung up long before.
func TestARequestCountsUntilItsCleanUpHasEnded(t *testing.T) {
	for _, blocked := range []string{"confirm", "release"} {
		among(t, 2, func(b *bed) {
			answer := make(chan struct{})
			b.before(func(step string) {
				if step == blocked {
					<-answer
				}
				time.Sleep(time.Millisecond)
			})
			w := b.asks("a", "POST /v1/locks?name=a&lease=1h")
			time.Sleep(2500 * time.Microsecond) // it is being confirmed
			w.Close()
			time.Sleep(time.Second)
			assert.Empty(t, b.agent.all(), "the hold is over")
			b.refuses("a", "b")
			close(answer)
			time.Sleep(time.Second)
			b.asks("a", "POST /v1/locks?name=b").reads("held")
		})
	}
}

// A hold that is over counts until its response has been sent, or can't be sent in time: a program that reads nothing could otherwise
// have any number of responses, each with its connection.
func TestAHoldCountsUntilItsResponseHasBeenSent(t *testing.T) {
	for _, reads := range []bool{false, true} {
		among(t, 2, func(b *bed) {
			w := b.dial("a")
			_, err := fmt.Fprint(w, "POST /v1/locks?name=a&lease=1h HTTP/1.0\r\n\r\n")
			require.NoError(t, err)
			b.settle()
			b.call("b", "POST /v1/holds/"+b.agent.all()[0].id+"/release")
			assert.Empty(t, b.agent.all(), "the hold is over")
			b.refuses("a", "b")
			if reads {
				_, _ = io.Copy(io.Discard, w)
			} else {
				time.Sleep(lastWords)
			}
			b.settle()
			b.asks("a", "POST /v1/locks?name=b").reads("held")
		})
	}
}

// At most 32 claims of one program are in flight, so a program with one claim does not wait for a hundred of the others.
// Heartbeats and releases wait for none of it.
func TestAProgramHasAFewClaimsInFlight(t *testing.T) {
	among(t, 1000, func(b *bed) {
		id := b.asks("holder", "POST /v1/locks?name=held&lease=3s").reads("held").Hold
		const took = 2 * time.Second
		var beats, claims atomic.Int64
		b.before(func(step string) {
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
			b.asks("a", fmt.Sprintf("POST /v1/locks?name=a%d&lease=1h", i))
		}
		assert.EqualValues(t, 32, claims.Load())
		for i := range 100 {
			b.asks("b", fmt.Sprintf("POST /v1/locks?name=b%d&lease=1h", i))
		}
		assert.EqualValues(t, 64, claims.Load())
		healthy := b.asks("healthy", "POST /v1/locks?name=free&lease=1h")
		assert.EqualValues(t, 65, claims.Load())
		healthy.reads("held")
		assert.Equal(t, took, time.Since(start))
		assert.Positive(t, beats.Load())
		assert.Equal(t, http.StatusOK, b.asks("holder", "POST /v1/holds/"+id+"/release").wait())
		assert.Equal(t, took, time.Since(start))
	})
}

// A request that waits for its program's turn waits no longer than it asked to, or than its client. It claims nothing then.
func TestARequestWaitsForItsTurnAsLongAsItAskedTo(t *testing.T) {
	among(t, 1000, func(b *bed) {
		answer := make(chan struct{})
		var claims atomic.Int64
		b.before(func(step string) {
			if step == "claim" {
				claims.Add(1)
				<-answer
			}
		})
		for i := range 32 {
			b.asks("a", fmt.Sprintf("POST /v1/locks?name=a%d&lease=1h", i))
		}
		start := time.Now()
		gone, last := b.asks("a", "POST /v1/locks?name=gone&lease=1h"), b.asks("a", "POST /v1/locks?name=last&lease=1h")
		b.asks("a", "POST /v1/locks?name=timed&lease=1h&wait=100ms").reads("timeout")
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		gone.Close()
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
	among(t, 1000, func(b *bed) {
		var mu sync.Mutex
		tickets, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			tickets += n
			most = max(most, tickets)
		}
		b.before(func(step string) {
			if step == "queue" {
				count(1)
				time.Sleep(time.Millisecond)
				count(-1)
			}
		})
		for i := range 100 {
			b.asks("a", fmt.Sprintf("POST /v1/locks?name=%d&lease=1h", i)).reads("held")
		}
		for i := range 100 {
			b.asks("b", fmt.Sprintf("POST /v1/locks?name=%d&lease=1h", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 32, most)
		start := time.Now()
		b.asks("b", "POST /v1/locks?name=free&lease=1h").reads("held")
		assert.Less(t, time.Since(start), 50*time.Millisecond, "a place that is kept is given up after a second") // a waiter may just renew its ticket
	})
}

// Requests begin in turn. One that waits for something lets others begin, and so does a connection that sends nothing.
func TestRequestsBeginInTurn(t *testing.T) {
	among(t, 1000, func(b *bed) {
		b.before(func(step string) { time.Sleep(time.Second) })
		for range 100 {
			b.dial("a")
			b.asks("a", "POST /v1/locks?wait=0&lease=1h&name="+fmt.Sprint(len(b.wires)))
		}
		assert.Empty(t, b.agent.programs.byKey["a"].begins, "all have begun")
		for range 100 { // and these never end to begin
			w := b.dial("a")
			_, _ = w.Write([]byte("GET /livez HTTP/1.1\r\n"))
		}
		synctest.Wait()
		assert.Len(t, b.agent.programs.byKey["a"].begins, 32)
		start := time.Now()
		assert.Equal(t, http.StatusOK, b.asks("b", "GET /livez").wait())
		assert.Zero(t, time.Since(start))
	})
}

// A client can send more before its request is answered, such as an empty line or its next request. What it sends does not yet
// count as a request that begins. Otherwise, a few connections would delay all other requests of the program.
func TestWhatFollowsARequestThatWaitsDoesNotBegin(t *testing.T) {
	among(t, 1000, func(b *bed) {
		answer := make(chan struct{})
		b.before(func(string) { <-answer })
		var all []*stream
		for i := range 40 {
			s := b.asks("a", fmt.Sprintf("POST /v1/locks?wait=0&lease=1h&name=%d", i))
			_, err := s.Write([]byte("\n"))
			require.NoError(b, err)
			all = append(all, s)
		}
		synctest.Wait()
		assert.Empty(t, b.agent.programs.byKey["a"].begins)
		livez := b.asks("a", "GET /livez")
		assert.True(t, happened(livez.answered))
		close(answer)
		for _, s := range all {
			s.reads("held")
		}
		_, err := livez.Write([]byte("GET /livez HT"))
		require.NoError(b, err)
		synctest.Wait()
		assert.Len(t, b.agent.programs.byKey["a"].begins, 1, "the next request of a connection begins once the first has been answered")
	})
}

// The connections of a program are limited, so that it can't use up the agent's descriptors. The others are not affected.
func TestAProgramsConnectionsAreLimited(t *testing.T) {
	among(t, 10, func(b *bed) {
		for range 10 {
			b.dial("a")
		}
		synctest.Wait()
		b.refuses("a", "a")
		assert.Equal(t, http.StatusOK, b.asks("b", "GET /livez").wait())
		b.wires[0].Close()
		synctest.Wait()
		assert.Equal(t, http.StatusOK, b.asks("a", "GET /livez").wait())
	})
}

// A program has the whole time of stall= for its first lines, too. One that reads them late, but in time, keeps its lock.
func TestAProgramMayReadItsFirstLinesAsLateAsAnyOthers(t *testing.T) {
	const stall = time.Minute
	among(t, 100, func(b *bed) {
		clock := &fleet.Clock{}
		clock.Mono.Store(int64(time.Hour) - clock.Now().Mono) // the agent has run for longer than that
		b.agent.clock, b.agent.promises.clock = clock, clock
		s := &stream{TB: b.TB, Conn: b.dial("a"), answered: make(chan struct{}), lines: make(chan said, 100)}
		_, err := fmt.Fprintf(s, "POST /v1/locks?name=x&lease=10s&stall=%v HTTP/1.1\r\nHost: agent\r\n\r\n", stall)
		require.NoError(b, err)
		time.Sleep(stall * 9 / 10)
		go s.receive()
		s.reads("held")
		for range 20 { // which are read at once
			s.reads("until")
		}
		s.Close()
	})
}

// A lock that a program has asked for is refused to its other requests, until it has given up the first one. A program that closes
// its connection has given it up, and can ask again at once.
func TestALockIsRefusedUntilTheFirstRequestIsGivenUp(t *testing.T) {
	among(t, 100, func(b *bed) {
		first := b.asks("a", "POST /v1/locks?name=x&name=y&lease=1h&eof=release")
		first.reads("held")
		for _, names := range []string{"name=x", "name=z&name=y"} {
			assert.Equal(t, http.StatusConflict, b.asks("a", "POST /v1/locks?lease=1h&"+names).wait())
		}
		b.asks("b", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		b.asks("", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		b.asks("", "POST /v1/locks?name=x&lease=1h").reads("waiting")
		first.Close()
		b.asks("a", "POST /v1/locks?name=y&lease=1h").reads("held")
		for range 2 {
			assert.Regexp(t, `^s/slot/000[01]$`, b.asks("a", "POST /v1/semaphores?name=s&slots=2&lease=1h").reads("held").Names[0])
		}
	})
	among(t, 100, func(b *bed) {
		b.asks("a", "POST /v1/locks?name=z&lease=1h").reads("held")
		held := b.asks("a", "POST /v1/locks?name=x&lease=1h").reads("held")
		answer := make(chan struct{})
		b.before(func(step string) {
			if step == "release" {
				<-answer
			}
		})
		b.asks("a", "POST /v1/holds/"+held.Hold+"/release")
		next := b.asks("a", "POST /v1/locks?name=x&lease=1h") // while the release is in progress
		close(answer)
		b.call("a", "POST /v1/holds/"+next.reads("held").Hold+"/release")
		time.Sleep(lastWords)
		assert.Len(t, b.agent.programs.byKey["a"].asked, 1, "names of holds that are over are not kept")
	})
	among(t, 100, func(b *bed) {
		first := b.asks("a", "POST /v1/locks?name=x&lease=1h&eof=release")
		first.reads("held")
		answer := make(chan struct{})
		b.before(func(step string) {
			if step == "release" {
				<-answer
			}
		})
		first.Close()
		second := b.asks("a", "POST /v1/locks?name=x&lease=1h")
		close(answer)
		second.reads("held")
		assert.Equal(t, http.StatusConflict, b.asks("a", "POST /v1/locks?name=x&lease=1h").wait(), "the end of the first request does not give up the second")
	})
	among(t, 100, func(b *bed) {
		first := b.asks("a", "POST /v1/locks?name=x&lease=1h&eof=release")
		first.reads("held")
		first.Conn.(*wire).lag = time.Second
		first.Close()
		b.asks("a", "POST /v1/locks?name=x&lease=1h").reads("held") // although the agent was not told of the end when it was asked
	})
}

// books returns what the agent counts for a program: its connections, its holds, the locks that it has asked for, and the holds of all.
func (b *bed) books(key string) []any {
	ps := &b.agent.programs
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byKey[key]
	return []any{p.conns, len(p.holds), slices.Sorted(maps.Keys(p.asked)), ps.holds, len(b.agent.all())}
}

// watchless is a process that can't be watched.
type watchless struct{ process }

func (watchless) Watch(closed, exited func()) error { return errPlain }

// A refused request leaves nothing behind, whatever it was refused for: once the reason has gone, the same request is granted. A program
// that tries again would otherwise be told for ever that it has already asked for the lock.
func TestARefusedRequestLeavesNothing(t *testing.T) {
	for what, c := range map[string]struct {
		query   string
		status  int
		happens func(b *bed) (undo func())
	}{
		"a parameter":                {"name=new&colour=red", http.StatusBadRequest, nil},
		"a name that is given twice": {"name=new&name=new", http.StatusBadRequest, nil},
		"its second name":            {"name=new&name=held", http.StatusConflict, nil},
		"its first name":             {"name=held&name=new", http.StatusConflict, nil},
		"a name that is not allowed": {"name=new&name=other", http.StatusForbidden, func(b *bed) func() {
			b.agent.Allow = []string{"held", "new"}
			return func() { b.agent.Allow = nil }
		}},
		"a drain": {"name=new", http.StatusServiceUnavailable, func(b *bed) func() {
			b.agent.draining = true
			return func() { b.agent.draining = false }
		}},
		"a process that can't be watched": {"name=new", http.StatusServiceUnavailable, func(b *bed) func() {
			identify := b.agent.identify
			b.agent.identify = func(c net.Conn) (process, *problem) {
				p, bad := identify(c)
				return watchless{p}, bad
			}
			return func() { b.agent.identify = identify }
		}},
		"the holds of its program": {"name=new", http.StatusTooManyRequests, func(b *bed) func() {
			s := b.asks("p", "POST /v1/locks?name=more&lease=1h&eof=release")
			s.reads("held")
			return func() { s.Close() }
		}},
		"the holds of all": {"name=new", http.StatusTooManyRequests, func(b *bed) func() {
			var all []*stream
			for _, who := range []string{"q", "q", "r"} {
				all = append(all, b.asks(who, fmt.Sprintf("POST /v1/locks?name=%d&lease=1h&eof=release", len(all))))
			}
			return func() { all[0].Close() }
		}},
	} {
		for _, eof := range []string{"", "&eof=release"} {
			among(t, 4, func(b *bed) {
				b.asks("p", "POST /v1/locks?name=held&lease=1h").reads("held")
				undo := func() {}
				if c.happens != nil {
					undo = c.happens(b)
				}
				before := b.books("p")
				for range 2 {
					status, j := b.call("p", "POST /v1/locks?lease=1h&"+c.query+eof)
					assert.Equal(t, c.status, status, "%s: %v", what, j)
					b.settle()
					assert.Equal(t, before, b.books("p"), what)
				}
				undo()
				b.settle()
				b.asks("p", "POST /v1/locks?lease=1h&name=new"+eof).reads("held")
			})
		}
	}
}

// A program may have half of the holds, rounded up, and so at least one, however few there are. As many connections again are for its
// other requests: a program that has all of its holds could not release them otherwise.
func TestAProgramMayAlwaysHaveAHoldAndReleaseIt(t *testing.T) {
	for most := 1; most <= 5; most++ {
		for key, share := range map[string]int{"a": (most + 1) / 2, "": most} {
			among(t, most, func(b *bed) {
				for i := range share {
					b.asks(key, fmt.Sprint("POST /v1/locks?lease=1h&name=", i)).reads("held")
				}
				status, j := b.call(key, "POST /v1/locks?name=more")
				assert.Equal(t, http.StatusTooManyRequests, status, j)
				b.settle() // its connection is closed
				for i := range share - 1 {
					b.asks(key, fmt.Sprint("GET /v1/elections?name=", i)).wait() // and its connection stays open
				}
				id := b.agent.all()[0].id
				status, j = b.call(key, "POST /v1/holds/"+id+"/release")
				assert.Equal(t, http.StatusOK, status, "%d holds: %v", most, j)
			})
		}
	}
}

// A program may ask again for a lock that it has given up, and for no other: it would wait for itself, whatever kind of lock it asks for, and
// even if it has been asked to stop. Only the slots of a semaphore are several.
func TestAProgramMayAskAgainForWhatItHasGivenUp(t *testing.T) {
	for _, c := range []struct {
		phase phase
		may   bool
	}{{waiting, false}, {missed, true}, {quitting, true}, {held, false}, {stopping, false}, {doubtful, true}, {orphaned, true}, {releasing, true}, {over, true}} {
		for i := range 32 {
			kinds := []string{locks, elections, onces, semaphores}
			kind, again, closed := kinds[i%4], kinds[i/4%3], i >= 16
			ps, w := &New(Config{MaxHolds: 10}).programs, &wire{process: newProcess("a"), closed: make(chan struct{})}
			ask := func(kind string) (*hold, *problem) {
				h := &hold{owner: owner{asked: &request{kind: kind, names: []string{"a"}}, who: peer.Identity{Key: "a"}, peer: newKnown(w)}}
				return h, ps.enter(h)
			}
			first, bad := ask(kind)
			require.Nil(t, bad)
			first.change(func(s *status) { s.phase = c.phase })
			if closed {
				w.shutsDown()
			}
			_, bad = ask(semaphores)
			assert.Nil(t, bad)
			_, bad = ask(again)
			assert.Equal(t, c.may || closed || kind == semaphores, bad == nil, "phase %d, closed %v, %s and %s", c.phase, closed, kind, again)
		}
	}
}
