package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
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
	})
	const trouble, over = "can't compete for job, will try again", "competing for job again"
	want := []string{trouble, over, "held by a, token 7", trouble, over, trouble, trouble, over, "held by a, token 8"}
	if assert.Len(t, said, len(want), "%q", said) {
		for i := range want {
			assert.Contains(t, said[i], want[i])
		}
	}
}
