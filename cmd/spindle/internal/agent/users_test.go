package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
)

// users are the users of programs with these names. The agent's user is another one, unless it is root.
var users = map[string]int{"root": 0, "agent": os.Getuid(), "p": 100001, "p2": 100001, "q": 100002}

// user is a process of one of the users.
type user struct{ process }

func (u user) Who() peer.Identity {
	who := u.process.Who()
	who.UID = users[who.Key]
	return who
}

// amongUsers runs a test with programs of several users in virtual time.
func amongUsers(t *testing.T, test func(*bed)) {
	among(t, 100, func(b *bed) {
		identify := b.agent.identify
		b.agent.identify = func(c net.Conn) (process, *problem) {
			p, bad := identify(c)
			return user{p}, bad
		}
		test(b)
	})
}

// A program sees, releases and stops the holds of its own user, and no others. Root may do so with all holds, and the agent's user may
// ask all programs to stop. Nobody else learns the names of locks, because a name can be a secret of its user.
func TestAUserHasPowerOverTheHoldsOfItsOwn(t *testing.T) {
	for _, who := range []string{"root", "agent", "p2", "q"} {
		amongUsers(t, func(b *bed) {
			s := b.asks("p", "POST /v1/locks?name=secret&lease=1h")
			held := s.reads("held")
			all, own := users[who] == 0 || who == "agent", users[who] == 0 || who == "p2"

			status, j := b.call(who, "GET /v1/holds")
			assert.Equal(t, http.StatusOK, status)
			assert.Len(t, j["holds"], map[bool]int{true: 1}[own], who)
			metrics := b.metrics(who)
			assert.Contains(t, metrics, `spindle_agent_holds{state="held"} 1`)
			assert.Equal(t, all, strings.Contains(metrics, "secret"), who)
			want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[own]
			status, _ = b.call(who, "GET /v1/holds/"+held.Hold)
			assert.Equal(t, want, status, who)
			if !own {
				for _, path := range []string{"stepdown", "done", "release"} {
					status, j = b.call(who, "POST /v1/holds/"+held.Hold+"/"+path)
					assert.Equal(t, want, status, "%s: %v", who, j)
				}
			}
			if !own && !all {
				status, j = b.call(who, "POST /v1/stepdown")
				assert.Equal(t, []any{http.StatusOK, 0.}, []any{status, j["held"]}, "it waits for no program of others")
				status, j = b.call(who, "POST /v1/stepdown?drain")
				assert.Equal(t, []any{http.StatusForbidden, "not-yours"}, []any{status, j["code"]})
				assert.Empty(t, s.lines)
				b.asks("q", "POST /v1/locks?name=more&lease=1h").reads("held")
				return
			}
			stops := b.asks(who, "POST /v1/stepdown")
			assert.Equal(t, "stepdown", s.reads("stop").Reason, who)
			assert.False(t, happened(stops.answered), "the lock is still held")
			if own {
				status, j = b.call(who, "POST /v1/holds/"+held.Hold+"/release")
				assert.Equal(t, http.StatusOK, status, "%s: %v", who, j)
			} else {
				b.call("p", "POST /v1/holds/"+held.Hold+"/release")
			}
			_, j = stops.answer()
			assert.Equal(t, 0., j["held"])
			b.asks("q", "POST /v1/locks?name=more&lease=1h").reads("held")
		})
	}
}

// A drained agent refuses every request for a lock, and says why. The locks that are held stay held until their programs release them.
// The agent refuses a request whose drain parameter has any value except true, and is not drained by it.
func TestADrainIsForTheWholeAgent(t *testing.T) {
	amongUsers(t, func(b *bed) {
		for _, value := range []string{"false", "0", "no", "1"} {
			status, j := b.call("root", "POST /v1/stepdown?drain="+value)
			assert.Equal(t, []any{http.StatusBadRequest, "bad-parameter"}, []any{status, j["code"]}, value)
		}
		p, q := b.asks("p", "POST /v1/locks?name=a&lease=1h"), b.asks("q", "POST /v1/locks?name=b&lease=1h")
		first, second := p.reads("held"), q.reads("held")
		drains := b.asks("root", "POST /v1/stepdown?drain=true")
		p.reads("stop")
		q.reads("stop")
		for _, who := range []string{"root", "p"} {
			status, j := b.call(who, "POST /v1/locks?name=c&wait=0")
			assert.Equal(t, []any{http.StatusServiceUnavailable, "stopping"}, []any{status, j["code"]})
		}
		b.call("p", "POST /v1/holds/"+first.Hold+"/release")
		assert.False(t, happened(drains.answered))
		assert.NotEmpty(t, b.holder("b"))
		b.call("q", "POST /v1/holds/"+second.Hold+"/release")
		status, j := drains.answer()
		assert.Equal(t, []any{http.StatusOK, 0.}, []any{status, j["held"]})
	})
}

// bodies are the headers and bodies that some clients send, although requests need none. Two ends of lines follow each of them.
var bodies = []string{"Accept: */*", "Content-Length: 0", "Content-Length: 5\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0"}

// Every request that waits, for Spanner or for programs, lets the other requests of its program begin. Once its client has gone, a
// stepdown waits no longer, whatever the client has sent.
func TestEveryRequestThatWaitsLetsOthersBegin(t *testing.T) {
	for _, request := range []string{"POST /v1/holds/%s/release", "POST /v1/holds/%s/done", "POST /v1/stepdown", "POST /v1/stepdown?drain", "POST /v1/locks?name=b&wait=0&lease=1h",
		"GET /v1/elections?name=b", "POST /v1/release?name=b&token=1&hold=0123"} {
		for _, body := range bodies {
			amongUsers(t, func(b *bed) {
				held := b.asks("p", "POST /v1/once?name=a&key=k&lease=1h").reads("held")
				answer := make(chan struct{})
				b.before(func(string) { <-answer })
				s := b.asks("root", strings.Replace(request, "%s", held.Hold, 1), body)
				assert.False(t, happened(s.answered), request)
				assert.Empty(t, b.agent.programs.byKey["root"].begins, request)
				_ = s.Close()
				b.settle()
				b.peers.mu.Lock()
				if strings.Contains(request, "stepdown") {
					assert.Equal(t, 1, b.peers.open, "%s, %s: only the holder is known", request, body)
				}
				b.peers.mu.Unlock()
				close(answer)
			})
		}
	}
}

// A request that waits is answered with its outcome however long that takes, and whatever its client has sent: a program that is told
// that the outcome is unknown has to assume the worst.
func TestARequestIsAnsweredHoweverLongItWaits(t *testing.T) {
	for _, request := range []string{"POST /v1/holds/%s/release", "POST /v1/stepdown", "POST /v1/stepdown?drain"} {
		for _, body := range bodies {
			amongUsers(t, func(b *bed) {
				id := b.asks("p", "POST /v1/locks?name=a&lease=1h").reads("held").Hold
				answer := make(chan struct{})
				b.before(func(step string) {
					if step == "release" {
						<-answer
					}
				})
				s := b.asks("root", strings.Replace(request, "%s", id, 1), body)
				b.asks("p", "POST /v1/holds/"+id+"/release")
				time.Sleep(20 * time.Minute)
				assert.False(t, happened(s.answered), "%s, %s", request, body)
				close(answer)
				assert.Equal(t, http.StatusOK, s.wait(), "%s, %s: %s", request, body, s.body)
			})
		}
	}
}

// A connection on which nothing happens any more is closed, wherever its client has stopped: it would otherwise count against its program
// for as long as the client lives.
func TestAConnectionIsNotKeptForAClientThatHasStopped(t *testing.T) {
	for _, c := range []struct {
		text  string
		after time.Duration
	}{
		{"", 10 * time.Second},
		{"GET /livez HT", 10 * time.Second},
		{"GET /livez HTTP/1.1\r\nHost: a", 10 * time.Second},
		{"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx", bodyLimit},
		{"GET /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n", bodyLimit},
		{"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", time.Minute},
		{"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HT", 10 * time.Second},
	} {
		amongUsers(t, func(b *bed) {
			w := b.dial("p")
			go func() { _, _ = io.WriteString(w, c.text) }()
			go func() { _, _ = io.Copy(io.Discard, w) }()
			time.Sleep(c.after - time.Millisecond)
			b.agent.programs.mu.Lock()
			assert.Contains(t, b.agent.programs.byKey, "p", "%q", c.text)
			b.agent.programs.mu.Unlock()
			time.Sleep(2 * time.Second)
			b.agent.programs.mu.Lock()
			assert.Empty(t, b.agent.programs.byKey, "%q", c.text)
			b.agent.programs.mu.Unlock()
		})
	}
}

// A drain is for good: an agent that is to be stopped gives out no locks, even if the request for the drain was given up before the
// programs had released theirs.
func TestADrainLastsUntilTheAgentEnds(t *testing.T) {
	for _, givesUp := range []bool{false, true} {
		amongUsers(t, func(b *bed) {
			id := b.asks("p", "POST /v1/locks?name=a&lease=1h").reads("held").Hold
			drains := b.asks("root", "POST /v1/stepdown?drain")
			if givesUp {
				drains.Close()
				b.settle()
			}
			b.call("p", "POST /v1/holds/"+id+"/release")
			b.settle()
			_, j := b.call("p", "POST /v1/locks?name=a&lease=1h")
			assert.Equal(t, "stopping", j["code"], "gives up: %v", givesUp)
		})
	}
}

// late is a process that makes something happen while the agent looks its name up.
type late struct {
	process
	happens func()
}

func (l late) Describe() { l.happens() }

// An agent that is drained while a request is just beginning gives it no lock: the drain does not wait for it, and the agent would end while
// the program holds its lock.
func TestARequestThatBeginsDuringADrainGetsNoLock(t *testing.T) {
	a := newBed(t).agent
	_, bad := a.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute},
		late{somebody(), func() { a.Drain(t.Context(), "agent-stops") }})
	require.NotNil(t, bad)
	assert.Equal(t, "stopping", bad.Code)
	assert.Empty(t, a.all())
}

// The list of holds has an order that an operator can read, by the names of their locks. It is a list even if it is empty, because clients
// go through it.
func TestHoldsAreListedByTheirNames(t *testing.T) {
	amongUsers(t, func(b *bed) {
		_, none := b.call("q", "GET /v1/holds")
		assert.Equal(t, map[string]any{"holds": []any{}}, none)
		for _, name := range []string{"c", "a", "d", "b"} {
			b.asks("p", "POST /v1/locks?name=z&lease=1h&name="+name)
		}
		for _, name := range []string{"c", "a", "d", "b"} {
			b.asks("q", "POST /v1/locks?lease=1h&name="+name+"&name=z"+name)
		}
		_, j := b.call("q", "GET /v1/holds")
		var names []string
		for _, h := range j["holds"].([]any) {
			names = append(names, fmt.Sprint(h.(map[string]any)["names"]))
		}
		assert.Equal(t, []string{"[a za]", "[b zb]", "[c zc]", "[d zd]"}, names)
	})
}
