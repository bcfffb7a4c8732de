package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A lock is held from the line held until its release. The release is answered after its commit.
func TestALockIsHeldUntilItsRelease(t *testing.T) {
	among(t, 10, func(b *bed) {
		s := b.asks("p", "POST /v1/locks?name=a&lease=1s&label=job")
		held := s.reads("held")
		assert.Len(t, held.Hold, 32)
		assert.Equal(t, []string{"a"}, held.Names)
		assert.EqualValues(t, 990, held.Left, "a lease, without a hundredth of it")
		assert.Regexp(t, `^host/1/job/[0-9a-f]{16}$`, b.holder("a"))
		assert.Greater(t, s.reads("until").Until.Boottime, held.Until.Boottime)
		status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/release")
		assert.Equal(t, http.StatusOK, status, j)
		assert.Empty(t, b.holder("a"))
		s.ends()
		status, _ = b.call("p", "POST /v1/holds/"+held.Hold+"/release")
		assert.Equal(t, http.StatusOK, status, "a second release says the same")
	})
}

// The status of a request with wait=0 says whether it got the lock.
func TestWithoutWaitingTheStatusIsTheResult(t *testing.T) {
	for _, kind := range []string{"locks?", "semaphores?slots=1&", "elections?", "once?key=k&"} {
		among(t, 10, func(b *bed) {
			b.take("a", "a/slot/0000")
			status, j := b.call("p", "POST /v1/"+kind+"wait=0&lease=1s&name=a")
			assert.Equal(t, http.StatusConflict, status, j)
			assert.Equal(t, "busy", j["code"])
			b.asks("p", "POST /v1/"+kind+"wait=0&lease=1s&name=free").reads("held")
		})
	}
}

// A request with wait=0 is answered soon, whatever becomes of its requests to Spanner and of its agent, and leaves nothing behind. A
// program that does not want to wait would otherwise wait for the end of an outage.
func TestARequestThatDoesNotWaitIsAnsweredSoon(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for what, happens := range map[string]func(*bed){
			"refused": func(b *bed) { b.link.Refuse(func(string) error { return memstore.ErrCut }) },
			"lost":    func(b *bed) { b.link.Cut() },
			"claims refused": func(b *bed) {
				b.link.Refuse(fleet.Refusing("claim", memstore.ErrCut))
			},
			"confirmations refused": func(b *bed) { b.link.Refuse(fleet.Refusing("confirm", memstore.ErrCut)) },
			"asked to stop": func(b *bed) {
				b.before(func(string) { time.Sleep(time.Second) })
				go func() { time.Sleep(time.Second / 2); b.agent.Drain(context.Background(), "agent-stops") }()
			},
		} {
			among(t, 10, func(b *bed) {
				happens(b)
				began := time.Now()
				status, j := b.call("p", "POST /v1/"+kind+"&wait=0&lease=2s")
				assert.Equal(t, []any{http.StatusServiceUnavailable, "unavailable"}, []any{status, j["code"]}, "%s, %s: %v", kind, what, j)
				assert.LessOrEqual(t, time.Since(began), 4*time.Second, "%s, %s", kind, what)
				b.before(func(string) {})
				b.link.Refuse(nil)
				b.link.Mend()
				time.Sleep(20 * time.Second)
				assert.Empty(t, b.holder("a"), "%s, %s", kind, what)
			})
		}
	}
}

// All error responses have the same form and name the wrong value. None of these requests leaves a hold behind.
func TestBadRequestsSayWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *Config) { c.Allow = []string{"ok/", "slot"} })
		b.serve()
		for _, c := range []struct {
			request    string
			status     int
			code, says string
		}{
			{"POST /v1/locks", 400, "bad-parameter", "0 names"},
			{"POST /v1/locks?name=", 400, "bad-parameter", "empty"},
			{"POST /v1/locks?name=ok/a_1700000000000000", 400, "bad-parameter", "lease row"},
			{"POST /v1/locks?name=ok/%00", 400, "bad-parameter", "control characters"},
			{"POST /v1/locks?name=ok/%ff", 400, "bad-parameter", "UTF-8"},
			{"POST /v1/locks?name=ok/" + strings.Repeat("x", 5000), 400, "bad-parameter", "at most 4096"},
			{"POST /v1/locks?name=ok/a&name=ok/a", 400, "bad-parameter", "twice"},
			{"POST /v1/locks?name=other", 403, "name-not-allowed", "ok/"},
			{"POST /v1/locks?name=ok/a&name=other", 403, "name-not-allowed", "ok/"},
			{"GET /v1/elections?name=other", 403, "name-not-allowed", "ok/"},
			{"POST /v1/locks?name=ok/a&colour=red", 400, "unknown-parameter", "colour"},
			{"POST /v1/locks?name=ok/a&priority=1", 400, "unknown-parameter", "priority"},
			{"POST /v1/locks?name=ok/a&lease=10", 400, "bad-parameter", "10s"},
			{"POST /v1/locks?name=ok/a&lease=1ms", 400, "bad-parameter", "100ms"},
			{"POST /v1/locks?name=ok/a&lease=1s&lease=2s", 400, "bad-parameter", "2 times"},
			{"POST /v1/locks?name=ok/a&wait=-1s", 400, "bad-parameter", "wait"},
			{"POST /v1/locks?name=ok/a&eof=maybe", 400, "bad-parameter", "release"},
			{"POST /v1/locks?name=ok/a&value=%ff", 400, "bad-parameter", "UTF-8"},
			{"POST /v1/elections?name=ok/a&name=ok/b", 400, "bad-parameter", "one"},
			{"POST /v1/elections?name=ok/a&priority=10", 400, "bad-parameter", "0 to 9"},
			{"POST /v1/semaphores?name=ok/a", 400, "bad-parameter", "slots"},
			{"POST /v1/semaphores?name=ok/a&slots=x", 400, "bad-parameter", "whole number"},
			{"POST /v1/once?name=ok/a", 400, "bad-parameter", "every="},
			{"POST /v1/once?name=ok/a&key=k&every=1h", 400, "bad-parameter", "key="},
			{"POST /v1/once?name=ok/a&key=k&offset=1h", 400, "bad-parameter", "offset="},
			{"POST /v1/once?name=ok/a&every=1500ms", 400, "bad-parameter", "whole seconds"},
			{"POST /v1/holds/0123/release", 404, "no-such-hold", "id"},
			{"GET /v1/holds/0123", 404, "no-such-hold", "id"},
			{"GET /v1/elections", 400, "bad-parameter", "empty"},
			{"GET /v1/leading?name=ok/a", 503, "not-leading", "ok/a"},
			{"POST /v1/release?name=ok/a", 400, "bad-parameter", "token="},
			{"POST /v1/groups?name=ok/a", 404, "no-such-path", "/v1/groups"},
			{"DELETE /v1/locks?name=ok/a", 404, "no-such-path", "DELETE"},
		} {
			status, j := b.call("p", c.request)
			assert.Equal(t, c.status, status, "%.80s: %v", c.request, j)
			assert.Equal(t, c.code, j["code"])
			assert.Contains(t, j["detail"], c.says)
		}
		_, j := b.call("p", "GET /v1/holds")
		assert.Empty(t, j["holds"])
		assert.Empty(t, b.store.Rows())
		b.ends()
	})
}

// The agent refuses a malformed query. If it ignored the malformed part, the program would hold fewer locks than it asked for, or
// hold them on other terms, or believe that all of them were released.
func TestARequestWithAMalformedQueryIsRefused(t *testing.T) {
	among(t, 10, func(b *bed) {
		l := b.asks("p", "POST /v1/locks?name=c&lease=1h").reads("held")
		for _, request := range []string{
			"POST /v1/locks?name=a&name=100%", "POST /v1/locks?name=a&name=b;c",
			"POST /v1/locks?name=a&lease=60s;stall=5s", "POST /v1/once?name=a&key=k&wait=0;",
			"POST /v1/stepdown?drain=true;", fmt.Sprintf("POST /v1/release?name=c&name=100%%&token=%d&hold=%s", l.Token, l.Hold),
			"GET /v1/elections?name=a&name=100%", "GET /v1/leading?name=a&name=100%",
		} {
			s := b.asks("q", request)
			assert.Equal(t, http.StatusBadRequest, s.wait(), request)
			assert.Contains(t, string(s.body), `"code":"bad-parameter"`)
			assert.Contains(t, string(s.body), "write % as %25 and ; as %3B")
		}
		assert.Len(t, b.agent.all(), 1)
		w := httptest.NewRecorder()
		b.agent.ReadOnly().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/leading?name=a&name=100%", nil))
		assert.Equal(t, http.StatusBadRequest, w.Code)
	})
}

// Requests through a proxy are refused, because the proxy would be the peer of every program behind it.
func TestARequestThroughAProxyIsRefused(t *testing.T) {
	among(t, 10, func(b *bed) {
		for _, header := range []string{"Via: 1.1 proxy", "Forwarded: for=10.0.0.1", "X-Forwarded-For: 10.0.0.1"} {
			status, j := b.call("p", "POST /v1/locks?name=a", header)
			assert.Equal(t, http.StatusForbidden, status)
			assert.Equal(t, "proxied", j["code"])
		}
	})
}

// A program whose stream is closed, or whose process has ended, but not both, may still act. It loses the lock, and no other
// program gets it before the last promise is over.
func TestOneSignOfItsEndDoesNotReleaseALock(t *testing.T) {
	for reason, sign := range map[string]func(*wire){"closed": func(w *wire) { _ = w.Close() }, "exited": (*wire).exits} {
		among(t, 10, func(b *bed) {
			s := b.asks("p", "POST /v1/locks?name=a&lease=10s")
			held := s.reads("held")
			sign(s.Conn.(*wire))
			if reason == "exited" {
				assert.Equal(t, reason, s.reads("lost").Reason)
			}
			b.asks("q", "POST /v1/locks?name=a&lease=10s").reads("held")
			assert.GreaterOrEqual(t, time.Now().UnixMilli(), held.Until.Unix)
			_, j := b.call("p", "GET /v1/holds/"+held.Hold)
			assert.Equal(t, []any{"lost", map[string]error{"closed": errClosed, "exited": errExited}[reason].Error()}, []any{j["state"], j["detail"]})
			status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/release")
			assert.Equal(t, http.StatusGone, status)
			assert.Equal(t, "lost", j["code"])
		})
	}
}

// Whatever kind of lock a program has lost, by a sign of its end or because an operator has released it, no other program of this agent
// gets any of its names before the last promise is over. The next one gets it soon after that, because no more heartbeats are sent.
func TestEveryKindOfLostLockIsBarredUntilTheLastPromise(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for what, sign := range map[string]func(*wire){
			"released": func(*wire) {}, "closed": func(w *wire) { _ = w.Close() }, "exited": (*wire).exits,
			"closed, released": func(w *wire) { _ = w.Close() }, "exited, released": (*wire).exits,
		} {
			among(t, 10, func(b *bed) {
				s := b.asks("p", "POST /v1/"+kind+"&lease=10s")
				held := s.reads("held")
				sign(s.Conn.(*wire))
				time.Sleep(longestDoubt + time.Millisecond)
				for _, name := range held.Names {
					if strings.Contains(what, "released") {
						require.NoError(t, table.Table{Store: b.store}.Break(t.Context(), table.Token(held.Token), name))
					}
				}
				b.asks("q", "POST /v1/"+strings.Replace(kind, "name=a&name=b", "name=b", 1)+"&lease=10s").reads("held")
				assert.GreaterOrEqual(t, time.Now().UnixMilli(), held.Until.Unix, "%s, %s", kind, what)
				assert.Less(t, time.Now().UnixMilli(), held.Until.Unix+5000, "%s, %s", kind, what)
			})
		}
	}
}

// A program that does not read its lines may ask how long it holds its lock, even if it was asked to stop or seems to have ended. No other
// program gets the lock before that time is over.
func TestTheTimeThatAProgramAsksForIsPromised(t *testing.T) {
	for what, happens := range map[string]func(*hold, *wire){"holds": func(*hold, *wire) {}, "stops": func(h *hold, _ *wire) { h.stop("stepdown") }, "exited": func(_ *hold, w *wire) { w.exits() }} {
		among(t, 10, func(b *bed) {
			w := b.dial("p")
			_, err := fmt.Fprint(w, "POST /v1/locks?name=a&lease=10s HTTP/1.0\r\n\r\n") // and reads nothing
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			h := b.agent.all()[0]
			happens(h, w.(*wire))
			b.settle()
			_, j := b.call("p", "GET /v1/holds/"+h.id)
			until := time.Now().Add(time.Duration(j["left_ms"].(float64)) * time.Millisecond)
			require.Greater(t, time.Until(until), 5*time.Second, what)
			require.NoError(t, table.Table{Store: b.store}.Break(t.Context(), table.Token(j["token"].(float64)), "a"))
			b.asks("q", "POST /v1/locks?name=a&lease=10s").reads("held")
			assert.False(t, time.Now().Before(until), "%s: %v too soon", what, time.Until(until))
		})
	}
}

// A program that does not read for as long as it allowed itself loses its lock, even if it was asked to stop before.
func TestAProgramThatDoesNotReadLosesItsLockInEveryPhase(t *testing.T) {
	for _, stops := range []bool{false, true} {
		among(t, 10, func(b *bed) {
			_, err := fmt.Fprint(b.dial("p"), "POST /v1/locks?name=a&lease=10s&stall=3s HTTP/1.0\r\n\r\n") // and reads nothing
			require.NoError(t, err)
			time.Sleep(time.Second)
			h := b.agent.all()[0]
			if stops {
				h.stop("stepdown")
			}
			time.Sleep(time.Second)
			assert.Equal(t, map[bool]phase{false: held, true: stopping}[stops], h.status().phase)
			time.Sleep(2 * time.Second)
			assert.Equal(t, orphaned, h.status().phase, "stops: %v", stops)
			b.asks("p", "POST /v1/locks?name=a&lease=10s").reads("held") // it may ask again at once
		})
	}
}

// The loss of a superseded lock is noticed at the next heartbeat. No other program of this agent gets the lock until
// the last until has passed.
func TestALostLockIsBarredUntilTheLastPromise(t *testing.T) {
	among(t, 10, func(b *bed) {
		s := b.asks("p", "POST /v1/locks?name=a&lease=10s")
		held := s.reads("held")
		b.breaks(held)
		next := b.asks("q", "POST /v1/locks?name=a&lease=10s")
		assert.Equal(t, "superseded", s.reads("lost").Reason)
		next.reads("held")
		assert.GreaterOrEqual(t, time.Now().UnixMilli(), held.Until.Unix)
	})
}

// A released lock is not barred, although its program was promised a whole lease.
func TestTheNextProgramOfAnAgentHasAReleasedLockAtOnce(t *testing.T) {
	among(t, 10, func(b *bed) {
		held := b.asks("p", "POST /v1/locks?name=a&lease=10s").reads("held")
		status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/release")
		require.Equal(t, http.StatusOK, status, j)
		start := time.Now()
		b.asks("p", "POST /v1/locks?name=a&lease=10s").reads("held")
		assert.Less(t, time.Since(start), time.Second)
	})
}

// While Spanner can't be reached, the program gets a warning. When the lease ends, it loses its lock.
func TestAnOutageIsJeopardyAndThenALoss(t *testing.T) {
	among(t, 10, func(b *bed) {
		s := b.asks("p", "POST /v1/locks?name=a&lease=3s")
		s.reads("held")
		b.link.Refuse(func(string) error { return memstore.ErrCut })
		s.reads("jeopardy")
		assert.Equal(t, "expired", s.reads("lost").Reason)
		s.ends()
	})
}

// A request stops waiting after its time limit, and leaves nothing behind.
func TestAWaitEndsWithItsTime(t *testing.T) {
	among(t, 10, func(b *bed) {
		b.take("a", "a/slot/0000")
		for _, kind := range []string{"locks?", "semaphores?slots=1&", "elections?", "once?key=k&"} {
			start := time.Now()
			s := b.asks("p", "POST /v1/"+kind+"name=a&lease=1s&wait=200ms")
			s.reads("timeout")
			s.ends()
			assert.Less(t, time.Since(start), 400*time.Millisecond)
		}
	})
}

// A request that is given up while its claim is in flight never holds the lock: its program is told that it does not, and the lock is
// free at once, instead of being kept for an hour by a program that has gone.
func TestARequestThatIsGivenUpDuringItsClaimLeavesTheLockFree(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for _, moment := range []string{"claim is sent", "claim is answered", "confirm is sent", "confirm is answered"} {
			for what, happens := range map[string]func(*bed, *stream, string){
				"timeout": func(*bed, *stream, string) {},
				"release": func(b *bed, _ *stream, id string) { b.asks("p", "POST /v1/holds/"+id+"/release") },
				"stop":    func(b *bed, _ *stream, id string) { b.asks("p", "POST /v1/holds/"+id+"/stepdown") },
				"close":   func(_ *bed, s *stream, _ string) { _ = s.Close() },
				"exit":    func(_ *bed, s *stream, _ string) { s.Conn.(*wire).exits() },
			} {
				among(t, 10, func(b *bed) {
					late := func(now string) {
						if now == moment {
							time.Sleep(2 * time.Second)
						}
					}
					b.before(func(step string) { late(step + " is sent") })
					b.link.After(func(step string) { late(step + " is answered") })
					s := b.asks("p", "POST /v1/"+kind+"&lease=1h&wait=1500ms")
					time.Sleep(time.Second)
					happens(b, s, b.agent.all()[0].id)
					time.Sleep(10 * time.Second)
					assert.Empty(t, b.agent.all(), "%s, %s, %s", kind, moment, what)
					assert.Empty(t, b.holder("a")+b.holder("b")+b.holder("a/slot/0000"), "%s, %s, %s", kind, moment, what)
					var told string
					for l, ok := s.next(); ok; l, ok = s.next() {
						told += l.Event + l.Reason + " "
					}
					want := "hello waiting " + map[string]string{"timeout": "timeout ", "release": "refusedstopping ", "stop": "refusedstopping ", "exit": "refusedstopping "}[what]
					assert.Equal(t, want, told, "%s, %s, %s", kind, moment, what)
				})
			}
		}
	}
}

// Programs of one agent get a lock in the order in which they asked for it, because each has its own place in the queue, even if the
// agent can't tell them apart.
func TestProgramsOfOneAgentTakeTurns(t *testing.T) {
	for _, programs := range [][]string{{"0", "1", "2", "3"}, {"", "", "q", "", "q2", ""}} {
		among(t, 10, func(b *bed) {
			last := b.asks("p", "POST /v1/locks?name=a&lease=10s")
			var waiting []*stream
			for _, program := range programs {
				waiting = append(waiting, b.asks(program, "POST /v1/locks?name=a&lease=10s"))
				time.Sleep(time.Second) // it has its ticket
			}
			for _, next := range waiting {
				b.call("", "POST /v1/holds/"+last.reads("held").Hold+"/release")
				last = next
			}
			last.reads("held")
		})
	}
}

// Work that is done once is repeated until it has been done, and never again after that. Once a lock has been released, it is
// too late to record its key as done, and the answer says so.
func TestOnceRunsUntilItIsDone(t *testing.T) {
	among(t, 10, func(b *bed) {
		const request = "POST /v1/once?name=a&lease=1s&key="
		for _, hows := range [][]string{{"release", "release"}, {"done", "done", "release"}} {
			held := b.asks("p", request+"v1").reads("held")
			assert.Equal(t, "v1", held.Key)
			assert.Len(t, held.Record, 2)
			for _, how := range hows {
				status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/"+how)
				assert.Equal(t, http.StatusOK, status, j)
			}
			if hows[0] == "release" {
				status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/done")
				assert.Equal(t, http.StatusGone, status)
				assert.Equal(t, "lost", j["code"])
			}
		}
		s := b.asks("p", request+"v1")
		s.reads("done")
		s.ends()
		for key, code := range map[string]string{"v1": "done", "v0": "passed"} {
			status, j := b.call("p", request+key+"&wait=0")
			assert.Equal(t, http.StatusConflict, status)
			assert.Equal(t, code, j["code"])
		}
	})
}

// A program that records its key in a commit of its own writes what the agent would write, whether the key is the program's or a time of
// a schedule. After the release, that commit fails.
func TestARecordIsTheOneThatTheAgentWouldWrite(t *testing.T) {
	for _, key := range []string{"key=v1", "every=24h", "every=24h&offset=3h"} {
		among(t, 10, func(b *bed) {
			held := b.asks("p", "POST /v1/once?name=a&lease=10s&"+key).reads("held")
			var writes []table.Write
			for _, m := range held.Record {
				for kind, m := range m {
					m := m.(map[string]any)
					w := table.Write{Kind: map[string]table.Kind{"update": table.Update, "insertOrUpdate": table.Put}[kind]}
					for i, v := range m["values"].([]any)[0].([]any) {
						switch at, err := time.Parse(time.RFC3339Nano, v.(string)); {
						case i == 0:
							w.Name = v.(string)
							continue
						case v == commitTimestamp:
							v = table.Now
						case err == nil:
							v = at
						}
						w.Set = append(w.Set, table.Cell{Column: m["columns"].([]any)[i].(string), Value: v})
					}
					writes = append(writes, w)
				}
			}
			require.NoError(t, b.store.Commit(t.Context(), "own", writes))
			own := b.store.Rows()[table.DoneRow("a")]
			status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/done")
			require.Equal(t, http.StatusOK, status, j)
			want := b.store.Rows()[table.DoneRow("a")]
			assert.False(t, own.Heartbeat.IsZero())
			own.Heartbeat = want.Heartbeat
			assert.Equal(t, want, own, key)
			assert.Error(t, b.store.Commit(t.Context(), "own", writes))
		})
	}
}

// A program may lock as many names at once as a set may have, also if they are long. One more is refused with a reason.
func TestARequestMayHaveAsManyNamesAsASet(t *testing.T) {
	for names, status := range map[int]int{500: http.StatusOK, 501: http.StatusBadRequest} {
		among(t, 10, func(b *bed) {
			path := "POST /v1/locks?lease=1h"
			for i := range names {
				path += fmt.Sprintf("&name=%0500d", i)
			}
			s := b.asks("p", path)
			assert.Equal(t, status, s.wait(), "%d names", names)
			if status == http.StatusOK {
				assert.Len(t, s.reads("held").Names, names)
			}
		})
	}
}

// The line held names each lock that the program has, and fences it by the row that its transaction needs: the row is there as long as the
// lock is held, and not after the release. Another row would refuse every write, or none.
func TestEveryLockThatIsHeldIsFencedByItsOwnRow(t *testing.T) {
	for _, kind := range everyKindOfLock {
		among(t, 10, func(b *bed) {
			held := b.asks("p", "POST /v1/"+kind+"&lease=10s").reads("held")
			require.Len(t, held.Fence, len(held.Names), kind)
			for i, name := range held.Names {
				assert.NotEmpty(t, b.holder(name), kind)
				assert.Equal(t, table.LeaseKey(name, table.Token(held.Token)), held.Fence[i].Parameter, kind)
				assert.Contains(t, b.store.Rows(), held.Fence[i].Parameter, kind)
			}
			b.call("p", "POST /v1/holds/"+held.Hold+"/release")
			for _, f := range held.Fence {
				assert.NotContains(t, b.store.Rows(), f.Parameter, kind)
			}
		})
	}
}

// The agent asks a leader to stop and says why, whoever wants it: its operator, its agent or, with handover=true, a candidate of higher
// priority. The candidates are told first, and the leader leads for another third of its lease, so that one of them leads at once.
func TestALeaderIsAskedToStopAndToldWhy(t *testing.T) {
	const lease = 30 * time.Second
	for _, handover := range []string{"", "&handover=true"} {
		for how, want := range map[string]string{"holds/%s/stepdown": "stepdown", "stepdown": "stepdown", "drain": "agent-stops", "priority": "handover"} {
			among(t, 10, func(b *bed) {
				s := b.asks("p", "POST /v1/elections?name=a&lease=30s&priority=3"+handover)
				id := s.reads("held").Hold
				began := time.Now()
				switch how {
				case "drain":
					go b.agent.Drain(context.Background(), want)
				case "priority":
					b.asks("q", "POST /v1/elections?name=a&lease=30s&priority=4")
				default:
					b.asks("p", "POST /v1/"+strings.Replace(how, "%s", id, 1))
				}
				time.Sleep(time.Second)
				_, j := b.call("p", "GET /v1/elections?name=a")
				assert.Equal(t, how != "priority", j["leader"].(map[string]any)["leaving"] == true, how)
				var told said
				for told.Event != "stop" && time.Since(began) < 10*lease {
					told, _ = s.next()
				}
				if handover == "" && how == "priority" {
					want = ""
				}
				assert.Equal(t, want, told.Reason, "%s%s", how, handover)
				assert.GreaterOrEqual(t, time.Since(began), lease/3, "the candidates are told first")
			})
		}
	}
}

// A waiting candidate reads who leads. A leader that is asked to step down reads stop, and keeps its lock until it
// releases it. Then the next candidate leads.
func TestALeaderStepsDown(t *testing.T) {
	among(t, 10, func(b *bed) {
		b.take("other")
		assert.Equal(t, "other", b.asks("p", "POST /v1/elections?name=other&lease=1s").reads("leader").Leader.ID)

		s := b.asks("p", "POST /v1/elections?name=a&lease=1s&handover=true&value=http://10.0.0.1")
		id := s.reads("held").Hold
		next := b.asks("q", "POST /v1/elections?name=a&lease=1s")
		assert.Equal(t, http.StatusOK, b.asks("p", "GET /v1/leading?name=a").wait())
		_, j := b.call("p", "GET /v1/elections?name=a")
		assert.Equal(t, "http://10.0.0.1", j["leader"].(map[string]any)["value"])
		status, _ := b.call("p", "POST /v1/holds/"+id+"/stepdown")
		assert.Equal(t, http.StatusAccepted, status)
		assert.Equal(t, "stepdown", s.reads("stop").Reason)
		assert.NotEmpty(t, b.store.Rows()["a"].Heartbeat, "it is held")
		status, j = b.call("p", "POST /v1/holds/"+id+"/release")
		assert.Equal(t, http.StatusOK, status, j)
		held := next.reads("held")
		b.call("q", "POST /v1/holds/"+held.Hold+"/release")
		_, j = b.call("p", "GET /v1/elections?name=a")
		assert.Nil(t, j["leader"])
	})
}

// The agent tells a waiting candidate that the leader has gone, even while its priority keeps the candidate from leading.
func TestACandidateIsToldThatTheLeaderHasGone(t *testing.T) {
	among(t, 10, func(b *bed) {
		b.take("other")
		s := b.asks("p", "POST /v1/elections?name=other&lease=10s&priority=0")
		assert.Equal(t, "other", s.reads("leader").Leader.ID)
		require.NoError(t, table.Table{Store: b.store}.Break(t.Context(), table.TokenAt(b.store.Rows()["other"].Token), "other"))
		told, ok := s.next()
		for ok && told.Event == "until" {
			told, ok = s.next()
		}
		assert.Equal(t, "leader", told.Event)
		assert.Nil(t, told.Leader)
	})
}

// A draining agent asks every program to stop, gives out no more locks, and waits for the programs to release theirs.
func TestADrainingAgentWaitsForItsPrograms(t *testing.T) {
	among(t, 10, func(b *bed) {
		b.take("taken")
		s, waiter := b.asks("p", "POST /v1/locks?name=a&lease=1s"), b.asks("p", "POST /v1/locks?name=taken&lease=1s")
		held := s.reads("held")
		drained := make(chan struct{})
		go func() { b.agent.Drain(context.Background(), "agent-stops"); close(drained) }()
		assert.Equal(t, "agent-stops", s.reads("stop").Reason)
		refused := waiter.reads("refused")
		assert.Equal(t, "stopping", refused.Reason)
		assert.Equal(t, "this request was asked to stop waiting: agent-stops", refused.Detail, "not that the program went away")
		status, j := b.call("p", "POST /v1/locks?name=b")
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Equal(t, "stopping", j["code"])
		select {
		case <-drained:
			assert.Fail(t, "a program still holds its lock")
		case <-time.After(10 * time.Second):
		}
		b.call("p", "POST /v1/holds/"+held.Hold+"/release")
		<-drained
	})
}

// A client that closes its direction of the connection gets no answer to its release before the release has taken effect.
func TestAReleaseIsNotConfirmedBeforeItsCommit(t *testing.T) {
	b := onSocket(t)
	held := b.asks("", "POST /v1/locks?name=a&lease=1m").reads("held")
	commits := make(chan struct{})
	b.before(func(step string) {
		if step == "release" {
			<-commits
		}
	})
	s := b.asks("", "POST /v1/holds/"+held.Hold+"/release", "Connection: close")
	require.NoError(t, s.Conn.(interface{ CloseWrite() error }).CloseWrite())
	status, j := s.answer()
	assert.Equal(t, http.StatusAccepted, status)
	assert.Equal(t, "unknown", j["state"])
	close(commits)
}

// The metrics count current holds by state, and past holds by outcome.
func TestTheAgentsMetrics(t *testing.T) {
	among(t, 10, func(b *bed) {
		held := b.asks("p", "POST /v1/locks?name=a&lease=1s").reads("held")
		probes := httptest.NewRecorder()
		assert.Contains(t, b.metrics("p"), `spindle_agent_holds{state="held"} 1`)
		b.agent.ReadOnly().ServeHTTP(probes, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		assert.Contains(t, probes.Body.String(), `spindle_agent_held{spindle_lock="a"} 1`, "the metrics listener is for the agent's operators")
		b.call("p", "POST /v1/holds/"+held.Hold+"/release")
		assert.Contains(t, b.metrics("p"), `spindle_agent_holds_ended_total{outcome="released"} 1`)
	})
}

// A request with wait=0 gets a free lock although Spanner is slow, whatever the kind of the lock: it gives up only once it knows that the
// lock is held, or after a lease.
func TestARequestThatDoesNotWaitGetsAFreeLockFromASlowSpanner(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for _, takes := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond} {
			among(t, 10, func(b *bed) {
				b.before(func(string) { time.Sleep(takes) })
				held := b.asks("p", "POST /v1/"+kind+"&wait=0&lease=10s").reads("held")
				assert.NotEmpty(t, b.holder(held.Names[0]), "%s, %v", kind, takes)
			})
		}
	}
}

// The heartbeats of every hold have a connection of their own, so that they wait for no other request; nothing else uses it.
func TestHeartbeatsHaveAConnectionOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats := &memstore.Link{}
		b := newBed(t, func(c *Config) { c.Heartbeats = beats })
		beats.Store = b.store
		b.serve()
		for i, kind := range everyKindOfLock {
			b.asks("p", "POST /v1/"+strings.ReplaceAll(kind, "name=", fmt.Sprint("name=", i))+"&lease=10s").reads("held")
		}
		time.Sleep(time.Minute)
		assert.Zero(t, b.link.Counts()["heartbeat"])
		assert.Equal(t, []string{"heartbeat"}, slices.Collect(maps.Keys(beats.Counts())))
		assert.Len(t, b.agent.all(), len(everyKindOfLock), "no hold has ended")
		b.ends()
	})
}
