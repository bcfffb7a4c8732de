package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// The rows of a free lock do not always show since when it has been free.
func TestALockIsFreeAtLeastSinceItWasSeenToBe(t *testing.T) {
	l := gaps{freed: map[string]since{}}
	see := func(at time.Duration, token table.Token, known time.Duration) time.Duration {
		return l.freeFor(elect.LockView{Observation: table.Observation{Name: "m", Token: token, At: time.UnixMicro(0).Add(at)}, FreeFor: known})
	}
	assert.Zero(t, see(time.Second, 1, 0))
	assert.Equal(t, time.Second, see(2*time.Second, 1, 0))
	assert.Equal(t, 5*time.Second, see(2*time.Second, 1, 5*time.Second), "as the rows say, if that is longer")
	assert.Zero(t, see(3*time.Second, 2, 0), "another had it in between")
}
