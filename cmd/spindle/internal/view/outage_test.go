package view

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// Reads of a large table take up a fifth of the time. A single read that hangs does not mean that the table is large.
func TestALargeTableIsReadAFifthOfTheTime(t *testing.T) {
	assert.Equal(t, 8*time.Second, pause(time.Second, 2*time.Second, 3*time.Second))
	assert.Equal(t, time.Second, pause(time.Second, 8*time.Second, 10*time.Millisecond))
	assert.Equal(t, time.Second, pause(time.Second, 10*time.Millisecond, 10*time.Millisecond))
	assert.Equal(t, longestPause, pause(time.Second, time.Minute, time.Minute))
}

// An outage of hours is one line, however many looks fail, and its end is another.
func TestAnOutageIsTwoLinesInWatch(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	looks := make(chan look)
	w := &watching{Database: &connect.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable"}}
	said := commandtest.Complaints(func() {
		done := make(chan error)
		var lines bytes.Buffer
		go func() { done <- w.print(ctx, &terminal.Terminal{Writer: &lines}, looks) }()
		now := 100.
		well := func() {
			looks <- look{locks: []operator.Listing{commandtest.Held("x", "a", commandtest.At(100), commandtest.At(now), time.Second)}, at: commandtest.At(now)}
		}
		well()
		for range 2 {
			for range 100 {
				looks <- look{err: commandtest.Away}
			}
			for range 100 {
				now++
				well()
			}
		}
		stop()
		assert.NoError(t, <-done)
		assert.Equal(t, 1, strings.Count(lines.String(), "\n"), "the lock is held all the time: %s", lines.String())
	})
	require.Len(t, said, 4)
	for i, line := range said {
		assert.Contains(t, line, []string{"can't read the locks, will try again: ", "the locks can be read again"}[i%2])
	}
}

// watch reports a look that hangs, not only one that has failed.
func TestALookThatHangsIsSaidInWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		looks := make(chan look)
		w := &watching{Database: &connect.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable"}}
		said := commandtest.Complaints(func() {
			done := make(chan error)
			go func() { done <- w.print(ctx, &terminal.Terminal{Writer: io.Discard}, looks) }()
			time.Sleep(time.Hour)
			looks <- look{at: commandtest.At(100), pause: time.Second}
			time.Sleep(2 * time.Second)
			looks <- look{at: commandtest.At(102), pause: time.Second}
			time.Sleep(time.Hour)
			stop()
			assert.NoError(t, <-done)
		})
		require.Len(t, said, 3)
		assert.Contains(t, said[0], "no answer from Spanner for 2s\"")
		assert.Contains(t, said[1], "the locks can be read again")
		assert.Contains(t, said[2], "no answer from Spanner for 2s; the last output is as of 00:01:42Z")
	})
}
