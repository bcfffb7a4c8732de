package agent

import (
	"log/slog"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// unharmed is a process that neither ends nor closes its connection.
type unharmed struct{}

func (unharmed) Describe()               {}
func (unharmed) Who() peer.Identity      { return peer.Identity{Key: "a"} }
func (unharmed) Watch() error            { return nil }
func (unharmed) Closed() <-chan struct{} { return nil }
func (unharmed) Exited() <-chan struct{} { return nil }
func (unharmed) HasClosed() bool         { return false }
func (unharmed) Unread() int             { return 0 }
func (unharmed) Close()                  {}

// A hold that is over is not kept until its wait would have ended: programs that wait for up to a day would fill the
// agent's memory.
func TestAHoldIsNotKeptForItsWait(t *testing.T) {
	a := New(Config{Locks: table.Table{Store: &memstore.Store{}}, TableName: "locktable", MaxHolds: 1000, Host: "host", Log: slog.New(slog.DiscardHandler)})
	over := func() weak.Pointer[hold] {
		h, bad := a.newHold(&request{kind: locks, names: []string{"a"}, lease: time.Minute, wait: 24 * time.Hour}, unharmed{})
		require.Nil(t, bad)
		h.begin()
		<-h.wait.decided
		h.put(event{what: asked})
		<-h.ended
		return weak.Make(h)
	}()
	a.past = nil
	require.Eventually(t, func() bool { runtime.GC(); return over.Value() == nil }, 30*time.Second, time.Millisecond)
}
