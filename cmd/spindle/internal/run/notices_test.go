//go:build unix

package run

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// heard is what a job has heard.
type heard struct {
	all []string
	at  []time.Time
}

func (o *heard) notes(text string) {
	if o != nil && (len(o.all) == 0 || !strings.HasPrefix(text, "stuck: ") || o.all[len(o.all)-1] != text) { // Stuck may be called again
		o.all, o.at = append(o.all, text), append(o.at, time.Now())
	}
}

func noticing(o *heard) func(*site) { return func(s *site) { s.heard = o } }

func TestALockThatIsReleasedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o heard
		s := newSite(t, &memstore.Store{}, "a", noticing(&o)).start()
		s.running()
		s.signals <- syscall.SIGTERM
		s.ends()
		assert.Equal(t, []string{"ending"}, o.all)
	})
}

// Notices tell a loss once in a term, as early as the program is signaled to end.
func TestALossIsSaidOnceWhenTheProgramMustEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o heard
		s := newSite(t, &memstore.Store{}, "a", noticing(&o), func(s *site) { s.ignores = true }).start()
		p := s.running()
		s.Cut()
		s.ends()
		require.Equal(t, []string{"lost: no heartbeat was acknowledged in time"}, o.all)
		assert.Equal(t, p.told, o.at[0])
		s.Mend()
	})
}

func TestEachTermThatIsTakenAwayIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o heard
		store := &memstore.Store{}
		s := newSite(t, store, "a", noticing(&o), func(s *site) { s.exec.Restart = true }).start()
		for range 2 {
			s.running()
			takeAway(t, store)
		}
		s.running()
		s.signals <- syscall.SIGTERM
		s.ends()
		require.Len(t, o.all, 3, "%v", o.all)
		assert.Contains(t, o.all[0], "lost: "+table.ErrSuperseded.Error())
		assert.Contains(t, o.all[1], "lost: "+table.ErrSuperseded.Error())
		assert.Equal(t, "ending", o.all[2])
	})
}

// Sometimes only the release finds that the lock is gone.
func TestALossThatTheReleaseFindsIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o heard
		store := &memstore.Store{}
		s := newSite(t, store, "a", noticing(&o)).start()
		p := s.running()
		gone := table.LeaseKey("job", table.TokenAt(store.Rows()["job"].Token))
		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: gone}}))
		p.exit(0)
		s.ends()
		require.Len(t, o.all, 1)
		assert.Contains(t, o.all[0], "lost: "+table.ErrSuperseded.Error())
	})
}

// unkillable is a program in an uninterruptible wait, for example.
type unkillable struct{ *program }

func (unkillable) Kill() {}

type stuckJob struct{ *site }

func (j stuckJob) Start(t *elect.Term, until func() time.Time) (Program, error) {
	p, err := j.site.Start(t, until)
	if err != nil {
		return nil, err
	}
	return unkillable{p.(*program)}, nil
}

// A program that was killed and is there at the lock's deadline may run beside the next holder's. Notices tell that once,
// for each such program, and not before.
func TestAProgramThatOutlivesItsLockIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o heard
		s := newSite(t, &memstore.Store{}, "a", noticing(&o), func(s *site) {
			s.ignores = true
			s.exec.Job, s.exec.Restart = stuckJob{s}, true
		})
		s.start()
		for n := 2; n <= 4; n += 2 {
			p := s.running()
			begun := time.Now()
			s.Cut()
			time.Sleep(3 * lease)
			synctest.Wait()
			require.Len(t, o.all, n, "%v", o.all)
			assert.Equal(t, fmt.Sprintf("stuck: %s was killed, but had not exited by the deadline of %s", "work", "job"), o.all[n-1])
			assert.InDelta(t, elect.Limit(lease).Seconds(), o.at[n-1].Sub(begun).Seconds(), lease.Seconds()/10)
			s.Mend()
			p.exit(137)
		}
		s.signals <- syscall.SIGTERM
		s.ends()
		assert.Len(t, o.all, 5, "%v", o.all)
	})
}

// The loop answers in every phase in which it only waits.
func TestTheLoopAnswersWhileItWaitsAndWhileTheProgramRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := make(chan struct{})
		answers := func() {
			t.Helper()
			select {
			case asks <- struct{}{}:
			case <-time.After(time.Second):
				assert.Fail(t, "no answer")
			}
		}
		store := &memstore.Store{}
		other := newSite(t, store, "other").start()
		other.running()
		s := newSite(t, store, "a", func(s *site) { s.exec.Asks = asks }).start()
		time.Sleep(lease)
		answers()
		other.signals <- syscall.SIGTERM
		other.ends()
		s.running()
		answers()
		s.signals <- syscall.SIGTERM
		s.ends()
	})
}
