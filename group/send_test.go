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
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// still is a stopped clock.
type still struct {
	elect.SystemClock
	now time.Duration
}

// Now implements elect.Clock.
func (c *still) Now() elect.Instant {
	return elect.Instant{Wall: int64(time.Hour + c.now), Mono: int64(time.Minute + c.now)}
}

// atRest returns the moves of a member without a running loop, and its clock, which is stopped.
func atRest() (*moves, *still) {
	clock := &still{}
	g := New(nil, "locktable", "orders", Numbered(1), spindle.WithLease(lease), options.Option(func(c *options.Config) { c.Clock = clock }))
	return &moves{commits: commits{send: &requests{config: &g.config}}}, clock
}

// A partition that could not be claimed gets a commit of its own, so that it does not hold up other partitions. Those
// are claimed together.
func TestASuspectIsClaimedAlone(t *testing.T) {
	of, clock := atRest()
	v := share.NewInventory("orders", []string{"0", "1", "2", "3", "4", "5", "6", "7"})
	var rows []table.Observation
	for _, e := range v.All {
		rows = append(rows, table.Observation{Name: e.Lock})
	}
	suspect := v.All[3]
	suspect.Suspect.Fail(clock.Now(), lease, errors.New("its row is locked"))
	of.queue(v.Claim(rows, 500), false)
	queue := of.commits.queue
	require.Len(t, queue, 2)
	assert.Equal(t, []*share.Entry{suspect}, queue[0].entries(v), "small commits go first")
	assert.Len(t, queue[1].rows, 7)
}

// When Spanner aborts members' transactions because of each other, the members send one commit at a time until no
// commit has been aborted for half a lease.
func TestCommitsThatAreAbortedGoOneAtATime(t *testing.T) {
	of, clock := atRest()
	assert.Equal(t, lanes, of.commits.width())
	of.commits.oneAtATime()
	assert.Equal(t, 1, of.commits.width())
	clock.now = lease/2 - 1
	assert.Equal(t, 1, of.commits.width())
	clock.now = lease / 2
	assert.Equal(t, lanes, of.commits.width())
}

// So does a member whose commits are aborted: at first all at once, and then one at a time, until half a lease after the last.
func TestAMemberWhoseClaimsAreAbortedSendsOneAtATime(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, aborts := c.process("a", Numbered(64), batchesOf(16)), true
		a.link.Refuse(func(step string) error {
			if aborts && step == "claim-partitions" {
				return table.ErrAborted
			}
			return nil
		})
		slowly(a, lease/200)
		c.run(a)
		c.sleep(lease / 10) // the first four are given up
		aborts = false
		most := 0
		c.until(2*lease, "a to have all", func() bool { most = max(most, a.asked.moves()); return spreadOver(64, a)() })
		assert.Equal(t, 1, most)
		c.end(a)
	})
}

// A step that Spanner aborts each time is given up after a twentieth of a lease, because its observations become
// outdated.
func TestAStepThatIsAbortedEachTimeIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lease)
		defer cancel()
		began, tries := time.Now(), 0
		r := &requests{config: &options.Config{}}
		r.config.Clock, r.config.Lease = &fleet.Clock{}, lease
		err := r.insist(ctx, func(context.Context) error {
			tries++
			return table.ErrAborted
		})
		require.ErrorIs(t, err, table.ErrAborted)
		assert.InDelta(t, lease/20, time.Since(began), float64(lease/200))
		assert.Greater(t, tries, 5)
	})
}
