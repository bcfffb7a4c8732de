package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/lock"
)

// A lock that was lost before its program could learn that it held it, because an operator released it, is answered by
// lost, and never by held: the program would begin to work under a lock that others can have.
func TestALockThatIsLostBeforeHeldIsAnsweredByLost(t *testing.T) {
	for _, order := range [][]event{
		{{what: termEnded, err: spindle.ErrSuperseded}, {what: won, lock: fixed{}}},
		{{what: won, lock: fixed{}}, {what: termEnded, err: spindle.ErrSuperseded}},
	} {
		h := asks(t, newBed(t).agent, request{kind: locks, wait: time.Hour})
		for _, e := range order {
			h.put(e)
		}
		h.run()
		assert.Equal(t, "lost", h.status().outcome())
		assert.Equal(t, []string{"lost superseded"}, answered(h))
	}
}

// If a semaphore loses a slot before it hands the slot over, it waits for another slot. The agent tells the program about
// the other slot alone, and the program can release that slot, because the program never had the slot that was lost.
func TestALossBeforeTheSlotThatAProgramGetsDoesNotCount(t *testing.T) {
	for what, lose := range map[string]func(*bed){
		"expired": func(b *bed) { b.link.Cut() },
		"superseded": func(b *bed) {
			b.link.Lose(func(step string) bool { return step == "observe" }, nil)
			seen, err := table.Table{Store: b.store}.Observe(b.Context(), "a/slot/0000")
			require.NoError(b, err)
			b.breaks(said{Token: int64(seen[0].Token), Names: []string{"a/slot/0000"}})
		},
	} {
		among(t, 10, func(b *bed) {
			confirmed := memstore.Once("confirm")
			b.link.After(func(step string) {
				if confirmed(step) {
					lose(b)
				}
			})
			s := b.asks("p", "POST /v1/semaphores?name=a&slots=1&lease=9s")
			time.Sleep(20 * time.Second)
			b.link.Mend()
			held := s.reads("held")
			status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/release")
			assert.Equal(t, []any{http.StatusOK, "released"}, []any{status, j["state"]}, "%s: %v", what, j)
		})
	}
}

// A lock that is acquired just after its program has given up is given back, and its key is not recorded: no work was done for it.
func TestALockThatIsAcquiredTooLateIsGivenBack(t *testing.T) {
	for _, e := range []event{{what: streamEnds}, {what: exits}, {what: stalls}, {what: asked, done: true}, {what: stopAsked, reason: "stepdown"}} {
		h := asks(t, newBed(t).agent, request{kind: onces, due: lock.KeyOf("k")})
		for _, e := range []event{e, {what: won, lock: fixed{}}, {what: released}} {
			h.put(e)
		}
		h.run()
		require.Len(t, h.term.returned, 1, "%+v", e)
		assert.False(t, <-h.term.returned, "%+v", e)
		assert.Empty(t, answered(h))
		assert.Equal(t, []any{"released", false}, []any{h.status().outcome(), h.status().done})
	}
}

// Once the agent has reported a loss, it does not record the program's key, although it still has the lock: its answer to "done" reports the
// same loss.
func TestAKeyIsNotRecordedAfterItsProgramWasToldOfALoss(t *testing.T) {
	for _, told := range []bool{false, true} {
		h := asks(t, newBed(t).agent, request{kind: onces, due: lock.KeyOf("k")})
		h.put(event{what: won, lock: fixed{}})
		if told {
			h.put(event{what: stalls, err: errStalled})
		}
		for _, e := range []event{{what: asked, done: true}, {what: released}} {
			h.put(e)
		}
		h.run()
		assert.Equal(t, !told, <-h.term.returned)
		assert.Equal(t, !told, h.status().done)
	}
}

// A term can end before its end is reported. Its program is not told that it holds the lock.
func TestALockWithoutTimeLeftIsNotHeld(t *testing.T) {
	h := &hold{lines: newLines()}
	h.lines.add(line{Event: "held"})
	h.lines.end()
	assert.Empty(t, answered(h))
}

// Of the lines that a program has not been sent yet, the last one of each kind counts: a program that does not read for hours costs
// no memory.
func TestALineReplacesTheEarlierOneOfItsKind(t *testing.T) {
	h := &hold{lines: newLines()}
	for _, l := range []line{{Event: "until"}, {Event: "stop", Reason: "handover"}, {Event: "until"}, {Event: "jeopardy"}, {Event: "until"}} {
		h.lines.add(l)
	}
	h.lines.end()
	assert.Equal(t, []string{"stop handover", "jeopardy ", "until "}, answered(h))
}

// answered returns the lines that a hold sends, without the time left.
func answered(h *hold) (lines []string) {
	ours, theirs := net.Pipe()
	go h.lines.send(ours, func(*line) {})
	text := new(strings.Builder)
	_, _ = io.Copy(text, theirs)
	for _, l := range strings.Split(text.String(), "\n") {
		var said line
		if json.Unmarshal([]byte(l), &said) == nil {
			lines = append(lines, said.Event+" "+said.Reason)
		}
	}
	return lines
}

// A program releases a lock that was lost without the agent's knowledge, because an operator released it. Whether the work is done
// or not, the answer says that the lock was lost: others may have worked under it meanwhile.
func TestALossThatIsFoundAtTheReleaseIsAnswered(t *testing.T) {
	for _, c := range [][2]string{
		{"locks?name=a", "release"}, {"locks?name=a&name=b", "release"}, {"semaphores?name=a&slots=1", "release"}, {"once?name=a&key=k", "release"}, {"once?name=a&key=k", "done"}, {"elections?name=a", "release"},
	} {
		among(t, 100, func(b *bed) {
			l := b.asks("p", "POST /v1/"+c[0]+"&lease=1h").reads("held")
			b.breaks(l)
			status, _ := b.call("p", "POST /v1/holds/"+l.Hold+"/"+c[1])
			assert.Equal(t, http.StatusGone, status, c)
		})
	}
}

// A program releases its lock just after its machine was suspended for longer than the lease, before any timer has run. The
// answer says that the lock was lost: another machine may have worked under it meanwhile.
func TestALossThatNoTimerHasNoticedIsAnswered(t *testing.T) {
	for _, kind := range everyKindOfLock {
		among(t, 100, func(b *bed) {
			clock := &fleet.Clock{}
			b.agent.clock, b.agent.promises.clock = clock, clock
			l := b.asks("p", "POST /v1/"+kind+"&lease=10s").reads("held")
			time.Sleep(time.Second)
			clock.Wall.Add(int64(time.Minute)) // the machine was suspended
			status, j := b.call("p", "POST /v1/holds/"+l.Hold+"/release")
			assert.Equal(t, []any{http.StatusGone, "lost"}, []any{status, j["code"]}, "%s: %v", kind, j)
		})
	}
}

// A hold that is over is not kept until its wait would have ended: programs that wait for up to a day would fill the
// agent's memory.
func TestAHoldIsNotKeptForItsWait(t *testing.T) {
	a := newBed(t).agent
	over := func() weak.Pointer[hold] {
		h := asks(t, a, request{kind: locks, wait: 24 * time.Hour})
		h.begin()
		<-h.wait.decided
		h.stamp(&line{Event: "held"}) // a promise for a lease, which ends with the release
		h.put(event{what: asked})
		<-h.ended
		return weak.Make(h)
	}()
	a.past = nil
	require.Eventually(t, func() bool { runtime.GC(); return over.Value() == nil }, 30*time.Second, time.Millisecond)
}

// How long a program was ready to wait says nothing about how long it may hold its lock, or how long its release may take: the release
// of each kind of lock has until the lease would expire, and no longer. Then its program is told that the outcome is unknown.
func TestAReleaseHasALeaseHoweverShortTheWaitWas(t *testing.T) {
	for _, asked := range everyKindOfLock {
		for _, wait := range []string{"", "&wait=1s"} {
			for _, answers := range []bool{true, false} {
				among(t, 2, func(b *bed) {
					warned := new(bytes.Buffer)
					b.agent.Warnings = slog.New(slog.NewTextHandler(warned, &slog.HandlerOptions{Level: slog.LevelWarn}))
					l := b.asks("a", "POST /v1/"+asked+wait+"&lease=12s").reads("held")
					time.Sleep(60 * time.Second)
					assert.Empty(t, warned.String(), "the end of the wait is not the end of the work")
					want := http.StatusAccepted
					if answers {
						want = http.StatusOK
						b.before(func(string) { time.Sleep(3900 * time.Millisecond) })
					} else {
						b.link.Cut()
					}
					release := b.asks("a", "POST /v1/holds/"+l.Hold+"/release")
					time.Sleep(13 * time.Second)
					assert.True(t, happened(release.answered), "%s%s", asked, wait)
					assert.Equal(t, want, release.wait(), "%s%s", asked, wait)
					for _, name := range l.Names {
						assert.Equal(t, answers, b.holder(name) == "", "%s%s: %s", asked, wait, name)
					}
					counts := b.link.Counts()
					time.Sleep(time.Minute)
					assert.Equal(t, map[string]int{}, b.link.Counts(), "%s%s: no request after %v", asked, wait, counts)
				})
			}
		}
	}
}

// A release is answered within the lease, however short that is, and even if Spanner's client does not return in time: after it the lock
// has expired, whatever became of the release.
func TestAReleaseThatSpannerDoesNotAnswerIsAnsweredWithinTheLease(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for what, fails := range map[string]func(*bed){
			"lost":    func(b *bed) { b.link.Cut() },
			"silent":  func(b *bed) { b.link.Lose(nil, func(string) bool { return true }) },
			"refused": func(b *bed) { b.link.Refuse(func(string) error { return memstore.ErrCut }) },
			"late":    func(b *bed) { b.before(func(string) { time.Sleep(20 * time.Second) }) },
		} {
			among(t, 10, func(b *bed) {
				l := b.asks("p", "POST /v1/"+kind+"&lease=2s").reads("held")
				fails(b)
				began := time.Now()
				status, j := b.call("p", "POST /v1/holds/"+l.Hold+"/release")
				assert.Equal(t, []any{http.StatusAccepted, "unknown"}, []any{status, j["state"]}, "%s: %s", kind, what)
				assert.LessOrEqual(t, time.Since(began), 2*time.Second, "%s: %s", kind, what)
				b.link.Mend()
			})
		}
	}
}

// A client that requests the metrics in a loop does not keep the agent busy.
func TestFewRequestsForTheMetricsAreServedAtATime(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	h := fewAtATime(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-end }))
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.Equal(t, http.StatusOK, ask()) })
		<-begun
	}
	assert.Equal(t, http.StatusServiceUnavailable, ask())
	close(end)
	all.Wait()
	go func() { <-begun }()
	assert.Equal(t, http.StatusOK, ask())
}

// An agent remembers how its last holds ended, and forgets the oldest ones: it would otherwise grow for as long as it runs, or could not
// say what became of a release whose answer was lost.
func TestAnAgentRemembersTheLastHoldsThatEnded(t *testing.T) {
	a := newBed(t).agent
	var all []*hold
	for range remembered + 5 {
		h := asks(t, a, request{kind: locks})
		h.account.now.phase = over
		a.ended(h)
		a.programs.end(h)
		all = append(all, h)
	}
	assert.Empty(t, a.all())
	for i, h := range all {
		assert.Equal(t, i >= 5, a.find(h.id) == h, i)
	}
}

// A request whose program has closed its side of the connection is refused, and counts no longer: nobody would read its lines.
func TestARequestOfAProgramThatHasGoneIsRefused(t *testing.T) {
	for _, eof := range []bool{false, true} {
		a := newBed(t).agent
		w := &wire{process: newProcess("a"), closed: make(chan struct{})}
		w.shutsDown()
		_, bad := a.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute, releasesAtEOF: eof}, newKnown(w))
		require.NotNil(t, bad)
		assert.Equal(t, []any{http.StatusBadRequest, "closed"}, []any{bad.Status, bad.Code})
		assert.Empty(t, a.programs.byKey)
	}
}

// A key is recorded only for a hold that has one. The other kinds of locks are not released by such a request: the program may have meant
// another hold.
func TestOnlyAKeyIsDone(t *testing.T) {
	for _, kind := range everyKindOfLock {
		among(t, 10, func(b *bed) {
			held := b.asks("p", "POST /v1/"+kind+"&lease=1h").reads("held")
			status, j := b.call("p", "POST /v1/holds/"+held.Hold+"/done")
			if strings.HasPrefix(kind, onces) {
				assert.Equal(t, []any{http.StatusOK, "released"}, []any{status, j["state"]}, kind)
				return
			}
			assert.Equal(t, []any{http.StatusBadRequest, "not-once"}, []any{status, j["code"]}, kind)
			assert.NotEmpty(t, b.holder(held.Names[0]), kind)
		})
	}
}

// A request that belongs to no hold is answered although Spanner does not answer, whichever of its steps, and other requests begin
// meanwhile.
func TestARequestThatSpannerDoesNotAnswerIsUnavailable(t *testing.T) {
	for _, c := range []struct {
		request, step string
		status        int
		limit         time.Duration
	}{
		{"GET /v1/elections?name=a%.0d%.0s", "", http.StatusServiceUnavailable, 8 * time.Second}, // a probe's response may take 10 s
		{"POST /v1/release?name=a&token=%d&hold=%s", "", http.StatusServiceUnavailable, 30 * time.Second},
		{"POST /v1/release?name=a&token=%d&hold=%s", "release", http.StatusAccepted, 30 * time.Second},
	} {
		among(t, 10, func(b *bed) {
			held := b.asks("p", "POST /v1/locks?name=a&lease=1h").reads("held")
			b.agent.mu.Lock()
			clear(b.agent.holds) // as if another agent had held it
			b.agent.mu.Unlock()
			b.link.Lose(func(step string) bool { return c.step == "" || step == c.step }, nil)
			s := b.asks("q", fmt.Sprintf(c.request, held.Token, held.Hold))
			assert.Empty(t, b.agent.programs.byKey["q"].begins, c.request)
			time.Sleep(c.limit + time.Second)
			require.True(t, happened(s.answered), c.request)
			assert.Equal(t, c.status, s.wait(), c.request)
			b.link.Mend()
		})
	}
}

// A program that loses its lock is told that, and not to stop: a program that is asked to stop still holds its lock, and may complete its
// work first.
func TestAProgramThatLosesItsLockIsNotAskedToStop(t *testing.T) {
	for _, kind := range everyKindOfLock {
		for what, lose := range map[string]func(*bed, *stream, said){
			"superseded": func(b *bed, _ *stream, l said) { b.breaks(l) },
			"expired":    func(b *bed, _ *stream, _ said) { b.link.Refuse(func(string) error { return memstore.ErrCut }) },
			"exited":     func(_ *bed, s *stream, _ said) { s.Conn.(*wire).exits() },
		} {
			among(t, 20, func(b *bed) {
				for i := range 5 { // because what is told first may be a matter of chance
					s := b.asks("p", "POST /v1/"+strings.ReplaceAll(kind, "name=", fmt.Sprint("name=", i))+"&lease=9s")
					lose(b, s, s.reads("held"))
					var told []string
					for l, ok := s.next(); ok; l, ok = s.next() {
						if l.Event != "until" {
							told = append(told, strings.TrimSpace(l.Event+" "+l.Reason))
						}
					}
					b.link.Refuse(nil)
					want := []string{"lost " + what}
					if what == "expired" {
						want = []string{"jeopardy", "lost expired"}
					}
					assert.Equal(t, want, told, "%s: %s", kind, what)
				}
			})
		}
	}
}

// A program whose wait ends during an outage is told of the outage: it would otherwise look for another holder.
func TestAWaitThatEndsInAnOutageSaysSo(t *testing.T) {
	for _, kind := range everyKindOfLock {
		among(t, 10, func(b *bed) {
			b.link.Refuse(func(string) error { return memstore.ErrCut })
			detail := b.asks("p", "POST /v1/"+kind+"&lease=2s&wait=15s").reads("timeout").Detail
			assert.Regexp(t, "network is cut|polls or claims of the lock have been failing", detail, kind)
		})
	}
}

// A request with wait=0 is answered only once it is known why it did not get its lock: its program would otherwise read that it did.
func TestARequestIsNotAnsweredBeforeItsReasonIsKnown(t *testing.T) {
	for _, e := range []event{{what: refused, err: errBusy}, {what: won, lock: fixed{}}} {
		h := asks(t, newBed(t).agent, request{kind: locks, try: true})
		if e.what == won { // although the lock is already lost
			h.handle(event{what: termEnded, err: spindle.ErrSuperseded})
		}
		h.lines.mu.Lock()
		handled := make(chan struct{})
		go func() { defer close(handled); h.handle(e) }()
		for s := h.status(); s.refusal == nil && s.lost == ""; s = h.status() {
			runtime.Gosched()
		}
		assert.False(t, happened(h.wait.decided))
		h.lines.mu.Unlock()
		<-handled
		assert.True(t, happened(h.wait.decided))
	}
}

// hearing is called with each message of a log.
type hearing func(string)

func (h hearing) Write(p []byte) (int, error) {
	h(string(p))
	return len(p), nil
}

// What is said of a hold is already so: a program that reads that it holds its lock, and asks at once, must not be told that it still waits.
// A message is a warning if the program may lose its lock, or has lost it.
func TestWhatIsSaidOfAHoldIsAlreadySo(t *testing.T) {
	won, exits, ends := event{what: won, lock: fixed{}}, event{what: exits}, event{what: termEnded, err: spindle.ErrExpired}
	for _, c := range []struct {
		events []event
		states string // at each message, with ! for a warning
	}{
		{[]event{won, {what: jeopardy, err: errPlain}, {what: stopAsked}, {what: asked}, {what: released}}, "held held! stopping released"},
		{[]event{won, {what: asked}, {what: released, err: errPlain}}, "held released!"},
		{[]event{won, {what: stalls, err: errStalled}, ends}, "held orphaned!"},
		{[]event{won, exits, {what: doubted}}, "held orphaned!"},
		{[]event{{what: refused, err: errBusy}}, "refused"},
		{[]event{{what: stopAsked}, {what: refused, err: errAsked}}, "refused"},
	} {
		var h *hold
		var states []string
		b := newBed(t, func(cfg *Config) {
			cfg.Log = slog.New(slog.NewTextHandler(hearing(func(text string) {
				states = append(states, h.status().state()+strings.Repeat("!", strings.Count(text, "level=WARN")))
			}), &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		h = asks(t, b.agent, request{kind: locks})
		for _, e := range c.events {
			h.handle(e)
		}
		assert.Equal(t, c.states, strings.Join(states, " "))
	}
}

// The last line of a request that did not get its lock says why, in the words of the protocol: programs decide by them whether to ask again.
func TestTheLastLineSaysWhyTheLockWasNotAcquired(t *testing.T) {
	asked := fmt.Errorf("%w: stepdown", errAsked)
	for _, c := range []struct {
		quit, err error
		want      line
	}{
		{nil, errBusy, line{Event: "refused", Reason: "busy", Detail: errBusy.Error()}},
		{nil, lock.ErrPassed, line{Event: "refused", Reason: "passed", Detail: lock.ErrPassed.Error()}},
		{nil, errPlain, line{Event: "refused", Detail: "the reason"}},
		{nil, errDone, line{Event: "done"}},
		{errTimeout, errPlain, line{Event: "timeout", Detail: "the reason"}},
		{errUnwanted, errPlain, line{Event: "refused", Reason: "stopping", Detail: "the reason"}},
		{asked, errPlain, line{Event: "refused", Reason: "stopping", Detail: asked.Error()}},
		{asked, errors.Join(errPlain, errDone), line{Event: "done"}},
	} {
		h := asks(t, newBed(t).agent, request{kind: locks})
		if c.quit != nil {
			h.wait.quit(c.quit)
		}
		h.handle(event{what: refused, err: c.err})
		said, ended := h.lines.take()
		assert.Equal(t, []any{[]line{c.want}, true}, []any{said, ended}, "%v, %v", c.quit, c.err)
	}
	h := asks(t, newBed(t).agent, request{kind: locks})
	h.handle(event{what: stalls, err: errStalled})
	h.handle(event{what: refused, err: errPlain})
	said, _ := h.lines.take()
	assert.Equal(t, []line{{Event: "refused", Reason: "stalled", Detail: "the reason"}}, said, "the agent does not stop")
}
