package run

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A candidate that waits through an outage logs it once, and its end once. It names each holder once.
func TestAnOutageIsTwoLinesOfACandidate(t *testing.T) {
	view := func(token table.Token) []elect.LockView {
		return []elect.LockView{{Observation: table.Observation{Name: "job", Exists: true, Heartbeat: commandtest.At(101), Token: token, Writer: "a"}, FreeIn: time.Second}}
	}
	n := reports{lockCommand: lockCommand{Database: &database.Database{}, name: "job"}}
	said := commandtest.Complaints(func() {
		for range 2 {
			for range 100 {
				n.seen(elect.Step{Err: commandtest.Away})
			}
			for range 100 {
				n.seen(elect.Step{Seen: view(7)})
			}
		}
		n.seen(elect.Step{Err: commandtest.Away})
		n.seen(elect.Step{Err: status.Error(codes.PermissionDenied, "no")})
		n.seen(elect.Step{Seen: view(8)})
		for range 2 {
			n.seen(elect.Step{Err: errors.New("what nobody knows")})
			n.seen(elect.Step{Err: fmt.Errorf("a row %w", table.ErrNewer)}) // another kind, although neither has a code
		}
	})
	const trouble, over = "can't compete for job, will try again", "competing for job again"
	want := []string{trouble, over, "held by a, token 7", trouble, over, trouble, trouble, over, "held by a, token 8", "what nobody knows", "a newer version", "what nobody knows", "a newer version"}
	if assert.Len(t, said, len(want), "%q", said) {
		for i := range want {
			assert.Contains(t, said[i], want[i])
		}
	}
}

// A probe says what the process does. One that waits for its lock is never said to have lost a lock, and is not ready, whatever
// it waits for. One whose term is over is not ready, although its program has not ended yet, and says why.
func TestAProbeSaysWhatTheProcessDoes(t *testing.T) {
	view := func(n int, free time.Duration) (seen []elect.LockView) {
		for i := range n {
			seen = append(seen, elect.LockView{Observation: table.Observation{Name: "job", Exists: true, Heartbeat: commandtest.At(101), Token: table.Token(7 + i), Writer: "a"}, FreeIn: free})
		}
		return seen
	}
	claimed := view(1, time.Second) // by a candidate that does not hold it yet
	claimed[0].Heartbeat = time.Time{}
	n := reportsOn(&memstore.Store{}, "job", "me", lease)
	for _, r := range []struct {
		step elect.Step
		want string
	}{
		{elect.Step{Err: commandtest.Away}, "on standby: can't compete for job: Unavailable"},
		{elect.Step{Err: status.Error(codes.PermissionDenied, "no")}, "on standby: can't compete for job: PermissionDenied"},
		{elect.Step{Err: fmt.Errorf("a row %w", table.ErrNewer)}, "on standby: can't compete for job: its row was written by a newer version of spindle"},
		{elect.Step{Seen: view(1, time.Second)}, "on standby: job is held by a, token 7"},
		{elect.Step{}, "on standby: job is held by a, token 7"}, // the poll was interrupted
		{elect.Step{Seen: view(2, time.Second)}, "on standby: no slot is free; the first is held by a, token 7"},
		{elect.Step{Seen: view(1, 0)}, "on standby: competing for job"},
		{elect.Step{Seen: claimed}, "on standby: competing for job"},
		{elect.Step{Seen: append(view(1, time.Second), view(1, 0)...)}, "on standby: competing for job"},
	} {
		n.seen(r.step)
		assert.Equal(t, health.Report{Why: r.want}, n.now())
	}
	term := n.candidate.Try(t.Context(), elect.All, 0).Term
	require.NotNil(t, term)
	n.acquired(term)
	n.does(true, "running")
	now := n.now()
	assert.InDelta(t, lease, now.Left, float64(lease/10))
	now.Left = 0
	assert.Equal(t, health.Report{Ready: true, Held: true, Token: int64(term.Token()), Why: "running"}, now)
	term.End(errGivenUp)
	assert.Equal(t, health.Report{Why: "the lock is lost"}, n.now(), "nobody has reported it yet")
	n.over()
	n.does(false, "ended")
	assert.Equal(t, health.Report{Why: "ended"}, n.now())
}
