package share

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
)

// How a term ended: for how long it had heard nothing, of requests and of heartbeats, and whether it was useless. On trial, one
// failure that lasts is enough, and a lease without success; otherwise it is a lease and a half.
func TestHowATermEnded(t *testing.T) {
	c := &still{}
	began := c.Now()
	p := Conduct{Lease: lease, Began: began, Acked: began}
	c.now += lease
	assert.Equal(t, Ending{Lasted: lease, Silence: lease / 2}, p.Ending(c.Now(), lease/2, 1, false))
	assert.Equal(t, Ending{Lasted: lease, Silence: lease}, p.Ending(c.Now(), 2*lease, 1, false))
	p.Failed(c.Now(), errors.New("no"), false)
	assert.EqualError(t, p.Err, "no")
	for _, trial := range []bool{false, true} {
		p.Trial = trial
		assert.Equal(t, trial, p.Ending(c.Now(), 0, 0, false).Useless)
		assert.True(t, p.Ending(c.Now(), 0, 0, true).Useless)
	}
	c.now += lease
	assert.True(t, p.Useless(c.Now(), 0))
	p.Trial = false
	assert.False(t, p.Useless(c.Now(), 0))
	assert.False(t, p.Ending(c.Now(), 0, 0, false).Useless)
	c.now += lease / 2
	assert.True(t, p.Ending(c.Now(), 0, 0, false).Useless)
}

// Whatever keeps a partition from being claimed or released, it is reported since the first failure, with the latest reason. An operator
// who has repaired one thing would otherwise be told that it is still broken.
func TestTheLatestReasonOfASuspicionIsReported(t *testing.T) {
	c, first, again := &still{}, errors.New("not JSON"), errors.New("a newer format")
	for _, fails := range []bool{false, true} {
		var s Suspicion
		since := c.Now()
		if fails {
			s.Fail(c.Now(), lease, first)
		} else {
			s.illegible(c.Now(), first)
		}
		pause := s.left(c.Now())
		c.now += lease / 20
		s.illegible(c.Now(), again)
		assert.Equal(t, []any{since, again}, []any{s.Since, s.Err}, "it failed when it was tried: %v", fails)
		assert.Equal(t, max(pause-lease/20, 0), s.left(c.Now()), "its pause goes on")
	}
}

// The partition that has failed for longest, and the work that was revoked first, are those that are reported. A partition that
// need not be claimed is not owed.
func TestTheOldestProblemIsReported(t *testing.T) {
	v, _ := numbered(3, 1)
	c := &still{}
	var since []elect.Instant
	for _, i := range []int{1, 0, 2} {
		since = append(since, c.Now())
		v.All[i].Suspect.illegible(c.Now(), errors.New("first"))
		v.All[i].Busy = &Assignment{Since: c.Now()}
		c.now += lease / 2
		v.All[i].Suspect.illegible(c.Now(), errors.New("second"))
		v.All[i].Suspect.Fail(c.Now(), lease, errors.New("third"))
	}
	name, s := v.All.Oldest()
	assert.Equal(t, []any{"001", since[0]}, []any{name, s.Since})
	v.All[2].Busy.Since = elect.Instant{} // its context has ended with the term's, and the loop has not revoked it yet
	assert.Equal(t, Entries{v.All[1], v.All[0]}, v.All.Overdue(c.Now(), lease))
	assert.True(t, v.All.Owe())
	for _, e := range v.All {
		e.Target = false
	}
	assert.False(t, v.All.Owe())
	v.All[0].State = Held
	assert.False(t, v.All.Settled(), "it must move")
	v.All[0].Target = true
	assert.True(t, v.All.Settled())
	v.All[0].Paused = Paused
	assert.False(t, v.All.Settled(), "its work must return")
	v.All[0].Paused = Running
	v.All[1].Target = true
	assert.False(t, v.All.Settled(), "it must be claimed")
}
