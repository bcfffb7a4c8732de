package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// atRest returns the term of a member with n partitions, without a running loop, and its clock, which is stopped.
func atRest(t *testing.T, n int) (*term, *still) {
	clock := &still{}
	m := &member{Group: New(nil, "locktable", "orders", Numbered(n), spindle.WithLease(lease), options.Option(func(c *options.Config) { c.Clock = clock }))}
	return &term{m: m, exec: newExecutor(t.Context(), m)}, clock
}

// A partition that could not be claimed gets a commit of its own, so that it does not hold up other partitions. Those
// are claimed together.
func TestASuspectIsClaimedAlone(t *testing.T) {
	of, clock := atRest(t, 8)
	var rows []table.Observation
	for _, e := range of.m.inventory.all {
		rows = append(rows, table.Observation{Name: e.lock})
	}
	suspect := of.m.inventory.all[3]
	of.m.inventory.suspect(suspect, clock, lease, errors.New("its row is locked"))
	of.claim(rows)
	require.Len(t, of.exec.queue, 2)
	assert.Equal(t, []*entry{suspect}, of.exec.queue[0].entries, "small commits go first")
	assert.Len(t, of.exec.queue[1].entries, 7)
}

// When Spanner aborts members' transactions because of each other, the members send one commit at a time until no
// commit has been aborted for half a lease.
func TestCommitsThatAreAbortedGoOneAtATime(t *testing.T) {
	of, clock := atRest(t, 1)
	assert.Equal(t, lanes, of.exec.width())
	of.exec.oneAtATime()
	assert.Equal(t, 1, of.exec.width())
	clock.now = lease/2 - 1
	assert.Equal(t, 1, of.exec.width())
	clock.now = lease / 2
	assert.Equal(t, lanes, of.exec.width())
}

// A step that Spanner aborts each time is given up after a twentieth of a lease, because its observations become
// outdated.
func TestAStepThatIsAbortedEachTimeIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lease)
		defer cancel()
		began, tries := time.Now(), 0
		err := insist(ctx, &fleet.Clock{}, lease, lease, func(context.Context) error {
			tries++
			return table.ErrAborted
		})
		require.ErrorIs(t, err, table.ErrAborted)
		assert.InDelta(t, lease/20, time.Since(began), float64(lease/200))
		assert.Greater(t, tries, 5)
	})
}
