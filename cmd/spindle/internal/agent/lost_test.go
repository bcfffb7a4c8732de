package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A lock that was lost before its program could learn that it held it, because an operator released it, is answered by
// lost, and never by held: the program would begin to work under a lock that others can have.
func TestALockThatIsLostBeforeHeldIsAnsweredByLost(t *testing.T) {
	for _, order := range [][]event{
		{{what: termEnded, err: spindle.ErrSuperseded}, {what: won}},
		{{what: won}, {what: termEnded, err: spindle.ErrSuperseded}},
	} {
		a := New(Config{Locks: table.Table{Store: &memstore.Store{}}, TableName: "locktable", MaxHolds: 1000, Host: "host", Log: slog.New(slog.DiscardHandler)})
		h, bad := a.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute, wait: time.Hour}, unharmed{})
		require.Nil(t, bad)
		h.lock = lostLock{}
		for _, e := range order {
			h.put(e)
		}
		h.run()
		assert.Equal(t, "lost", h.status().outcome())
		assert.Equal(t, []string{"lost superseded"}, answered(h))
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

// lostLock is a lock that was lost.
type lostLock struct{ locker }

func (lostLock) token() spindle.Token                { return 1 }
func (lostLock) left() time.Duration                 { return 0 }
func (lostLock) names() []string                     { return []string{"a"} }
func (lostLock) key() (string, []table.Write)        { return "", nil }
func (lostLock) release(context.Context, bool) error { return spindle.ErrSuperseded }

// A program releases a lock that was lost without the agent's knowledge, because an operator released it. Whether the work is done
// or not, the answer says that the lock was lost: others may have worked under it meanwhile.
func TestALossThatIsFoundAtTheReleaseIsAnswered(t *testing.T) {
	for _, c := range [][2]string{
		{"locks?name=a", "release"}, {"locks?name=a&name=b", "release"}, {"semaphores?name=a&slots=1", "release"}, {"once?name=a&key=k", "release"}, {"once?name=a&key=k", "done"}, {"elections?name=a", "release"},
	} {
		among(t, 100, func(p *crowd) {
			l := p.asks("p", "POST /v1/"+c[0]+"&lease=1h").reads("held")
			require.NoError(t, table.Table{Store: &p.store}.Break(t.Context(), table.Token(l.Token), l.Names[0]))
			r := p.asks("p", "POST /v1/holds/"+l.Hold+"/"+c[1]).answer()
			assert.Equal(t, http.StatusGone, r.StatusCode, c)
		})
	}
}

// The answer to a release follows its result. The release is announced to the hold, which then ends and is answered for, only once
// the result is stored. Here, it can't be stored until the test has looked.
func TestAReleaseIsAnsweredOnlyOnceItsResultIsStored(t *testing.T) {
	a := New(Config{Locks: table.Table{Store: &memstore.Store{}}, TableName: "locktable", MaxHolds: 1000, Host: "host", Log: slog.New(slog.DiscardHandler)})
	h, bad := a.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute, wait: time.Hour}, unharmed{})
	require.Nil(t, bad)
	h.lock = failsToRelease{h: h}
	go h.release(true)
	select {
	case <-h.events.Ready():
		assert.Fail(t, "the release is announced before its result is stored")
		h.mu.Unlock()
	case <-time.After(50 * time.Millisecond):
		h.mu.Unlock()
		<-h.events.Ready()
	}
	assert.True(t, h.status().done)
	assert.ErrorIs(t, h.status().failure, spindle.ErrExpired)
}

// failsToRelease is a lock whose release fails. From then on, the hold's status is locked.
type failsToRelease struct {
	locker
	h *hold
}

func (f failsToRelease) release(context.Context, bool) error {
	f.h.mu.Lock()
	return spindle.ErrExpired
}
