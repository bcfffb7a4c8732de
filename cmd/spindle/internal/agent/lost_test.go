package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
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
