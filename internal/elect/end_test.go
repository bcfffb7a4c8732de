package elect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// wakingClock is the clock of a machine that was suspended for a while.
type wakingClock struct {
	SystemClock
	slept *time.Duration
}

func (c wakingClock) Now() Instant {
	now := c.SystemClock.Now()
	now.Wall += int64(*c.slept)
	return now
}

// The deadline counts from the sending of the confirmation, however late it is answered. After a suspension, the timer has not seen
// that the deadline has passed: a stop that comes first ends the work all the same, because another process may hold the lock.
func TestTheWorkOfATermEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{0, lease / 2, lease * 9 / 10} {
			var l life
			sent, began := SystemClock{}.Now(), time.Now()
			time.Sleep(late)
			l.begin(t.Context(), SystemClock{}, lease, sent)
			<-l.Context().Done()
			assert.Equal(t, Limit(lease), time.Since(began), late)
			assert.Error(t, l.Over().Err())
		}
		for _, slept := range []time.Duration{0, 2 * lease} {
			var l life
			l.begin(t.Context(), wakingClock{slept: &slept}, lease, SystemClock{}.Now())
			assert.Equal(t, slept == 0, l.Held())
			l.CancelWork(errStall)
			assert.ErrorIs(t, context.Cause(l.Context()), errStall)
			l.End(nil)
		}
	})
}

// Whatever happens to the requests of a release, it succeeds only if its commit has freed all the locks, and fails for a token that
// is no longer valid only if it has not. It ends before the locks expire, and if some of the locks were taken away, it frees the
// others. Otherwise work that succeeded would be reported as lost, or a program would wait for a lease for a lock that it had.
func TestAReleaseSaysWhetherItHasFreedTheLocks(t *testing.T) {
	said := map[string]int{}
	for seed := range 900 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 3))
			what := fmt.Sprintf("seed %d", seed)
			store := &memstore.Store{}
			names := []string{"a", "b", "c"}[:1+2*random.IntN(2)]
			c := candidate("me", store, names...)
			c.FreeRows, c.Reclaim = random.IntN(2) == 0, random.IntN(4) == 0
			var slept time.Duration
			c.Clock = wakingClock{slept: &slept}
			term := c.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			deadline := time.Now().Add(Limit(lease))
			time.Sleep(time.Duration(random.Int64N(int64(lease * 9 / 10))))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(2*lease))))
			defer cancel()
			last, _ := ctx.Deadline()
			if deadline.Before(last) {
				last = deadline
			}
			taken, takes, faults, reclaimed := "", random.IntN(4), random.IntN(10), false
			others := func() { // what operators and other candidates do meanwhile
				switch takes--; {
				case takes == 0 && len(names) > 1:
					taken = names[random.IntN(len(names))]
					if c.Table.Break(t.Context(), term.Token(), taken) != nil {
						taken = ""
					}
				case random.IntN(3) == 0:
					other := candidate([]string{"other", "me"}[random.IntN(2)], store, names...)
					other.Reclaim = c.Reclaim
					reclaimed = reclaimed || other.ID == "me"
					if next := other.Try(t.Context(), All, lease/3).Term; next != nil {
						next.End(nil)
					}
				}
			}
			applied, acknowledged := false, false
			term.table.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				assert.ErrorIs(t, context.Cause(term.Over()), errStall, what)
				until, limited := ctx.Deadline()
				assert.True(t, limited && !until.After(last) && time.Until(until) <= lease/3, what)
				others()
				fault := 0
				if random.IntN(10) < faults {
					fault = 1 + random.IntN(4)
				}
				Sleep(ctx, SystemClock{}, time.Duration(random.Int64N(int64(lease/100))))
				switch fault {
				case 1:
					<-ctx.Done()
					return ctx.Err()
				case 2:
					return errLost
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				err := call(ctx, store)
				if err == nil && step != "released" && taken == "" {
					applied = true
				}
				if fault == 3 && err == nil { // the client sends it again
					err = call(ctx, store)
				}
				if fault == 4 {
					<-ctx.Done()
					return ctx.Err()
				}
				if step != "released" {
					if random.IntN(20) == 0 {
						slept = 2 * lease
					}
					acknowledged = err == nil
				}
				return err
			})
			also := table.Write{Kind: table.Put, Name: "also"}
			var err error
			if finishes := len(names) == 1 && random.IntN(2) == 0; finishes {
				err = term.Finish(ctx, errStall, table.Due{Key: "k"}, "me", also)
			} else {
				err = term.Release(ctx, errStall, also)
			}
			inTime := time.Now().Before(last)
			assert.False(t, time.Now().After(last), what)
			assert.False(t, term.Held())
			rows := store.Rows()
			switch {
			case err == nil:
				said["released"]++
				assert.True(t, applied, what)
				assert.True(t, slept == 0 || acknowledged, "%s: others may have changed the rows since the lease has ended", what)
			case !errors.Is(err, table.ErrSuperseded):
				said["unknown"]++
				assert.False(t, inTime, "%s: it gave up at %v", what, time.Until(last))
				assert.ErrorContains(t, err, "left to expire")
			case inTime && !reclaimed && slept == 0:
				said["superseded"]++
				assert.False(t, applied, what)
			}
			if applied {
				assert.Contains(t, rows, "also", what)
			}
			if err == nil || inTime {
				for _, name := range names {
					row := rows[name]
					assert.Greater(t, table.TokenAt(row.Token), term.Token(), "%s: %s is still held", what, name)
				}
			}
		})
	}
	t.Log(said)
	for _, answer := range []string{"released", "unknown", "superseded"} {
		assert.Greater(t, said[answer], 10, answer)
	}
}
