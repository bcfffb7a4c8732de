package elect

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// succeeds comes before a successor's id in the lock row of a leaving holder.
const succeeds = "\n"

// stillClock shows one time, and its random durations are the given share of the longest one.
type stillClock struct {
	SystemClock
	now   Instant
	share float64
}

func (c *stillClock) Now() Instant { return c.now }

func (c *stillClock) Random(d time.Duration) time.Duration {
	return time.Duration(c.share * float64(d-1))
}

// earlier returns the instant that was a while before another.
func earlier(i Instant, d time.Duration) Instant {
	return Instant{i.Wall - int64(d), i.Mono - int64(d)}
}

// A follower of a holder that is leaving polls as docs/locks.md says: not before the holder can release the lock, then often if it is
// the successor, less often if another is, and ever more seldom once the holder takes longer than a lease. A follower that polls too
// often loads the table, and one that polls too seldom leaves the lock without a holder.
func TestAFollowerOfALeavingHolderPollsAsOftenAsItsRoleRequires(t *testing.T) {
	const own, other = time.Hour, 30 * time.Second // its own lease does not matter
	record := &table.LeaseRecord{Lease: other}
	for role, every := range map[string]time.Duration{"": other / 50, succeeds + "me": other / 100, succeeds + "you": other / 10} {
		for _, since := range []time.Duration{0, 1, other / 4, other / 3, other / 2, other - 1, other, other + 1, other * 3 / 2, 2 * other, 5 * other, 100 * other} {
			for _, share := range []float64{0, 0.5, 1} {
				clock := &stillClock{now: Instant{Wall: int64(time.Hour), Mono: int64(time.Hour)}, share: share}
				c := candidate("me", nil, "m", "n")
				c.Clock, c.LeaseRecord.Lease = clock, own
				seen := LockView{Observation: heldBy(tokenOne, 0, record), FreeIn: other}
				seen.Name, seen.Writer = "m", role
				require.True(t, seen.Leaving())
				c.observer.history("m").marked = earlier(clock.now, since)

				want := every
				if since > other {
					want = max(want, since/20)
				}
				want = max(Jitter(clock, want), other/3-since)
				what := fmt.Sprintf("role %q, since %v, share %v", role, since, share)
				assert.Equal(t, want, c.watch([]LockView{seen}), what)

				stays := LockView{Observation: heldBy(tokenTwo, 0, record), FreeIn: other}
				stays.Name = "n"
				assert.Equal(t, want, c.watch([]LockView{stays, seen}), what)
				assert.Equal(t, want, c.watch([]LockView{seen, stays}), what)
				assert.Equal(t, time.Duration(math.MaxInt64), c.watch([]LockView{stays}))
				unknown := seen
				unknown.LeaseRecord = nil
				assert.Equal(t, want, c.watch([]LockView{unknown, seen}), "a holder whose lease is not known")

				sooner := stays
				sooner.Writer, sooner.LeaseRecord = "", &table.LeaseRecord{Lease: other / 1000}
				c.observer.history("n").marked = clock.now
				soon := c.watch([]LockView{sooner})
				assert.Equal(t, min(want, soon), c.watch([]LockView{seen, sooner}))
				assert.Equal(t, min(want, soon), c.watch([]LockView{sooner, seen}))
			}
		}
	}
}

// Candidates come at random times to a lock that becomes free. These times are spread over a fiftieth of the shortest lease of the
// last holders, and wider after each lost claim, within bounds: otherwise a crowd collides for ever, or a lone candidate is late.
func TestTheTimeOverWhichCandidatesSpreadFollowsTheLastHolders(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		own     time.Duration
		last    []time.Duration // the leases of the last holders; 0: none is known
		contest int
		want    time.Duration
	}{
		{10 * s, nil, 0, 200 * time.Millisecond},
		{10 * s, []time.Duration{0}, 0, 200 * time.Millisecond},
		{10 * s, []time.Duration{20 * s}, 0, 400 * time.Millisecond},
		{10 * s, []time.Duration{5 * s}, 0, 100 * time.Millisecond},
		{10 * s, []time.Duration{20 * s, 5 * s}, 0, 100 * time.Millisecond},
		{10 * s, []time.Duration{5 * s, 20 * s}, 0, 100 * time.Millisecond},
		{10 * s, []time.Duration{30 * s, 20 * s}, 0, 400 * time.Millisecond},
		{10 * s, []time.Duration{20 * s, 0}, 0, 200 * time.Millisecond},
		{10 * s, []time.Duration{20 * s, 30 * s}, 3, 3200 * time.Millisecond},
		{10 * s, []time.Duration{20 * s}, 4, 5 * s},
		{10 * s, []time.Duration{20 * s}, 60, 5 * s},
		{time.Hour, nil, 0, s},
		{time.Hour, nil, 2, 4 * s},
		{time.Hour, nil, 8, 10 * s},
		{time.Hour, nil, 1000, 10 * s},
	} {
		names, seen := []string{}, []LockView{}
		for i := range c.last {
			names = append(names, fmt.Sprint(i))
			seen = append(seen, LockView{Observation: table.Observation{Name: names[i]}})
		}
		clock := &stillClock{}
		x := candidate("c", nil, names...)
		x.Clock, x.LeaseRecord.Lease, x.contests = clock, c.own, c.contest
		for i, last := range c.last {
			x.observer.history(names[i]).pace = last
		}
		assert.Zero(t, x.spread(seen), "%+v", c)
		clock.share = 1
		assert.Equal(t, c.want, x.spread(seen), "%+v", c)
	}
}

// In the pause before its next poll, a candidate asks each holder of lower priority that accepts requests to hand over, and names
// itself as the successor of each leaving holder that has none, whatever it does about its other locks. If the requests are slow,
// they use up the pause and do not come on top of it.
func TestACandidateSignalsToEachHolderThatItConcerns(t *testing.T) {
	type lock struct {
		rank             int // of the holder
		accepts, leaving bool
		successor        string
	}
	kinds := map[lock]string{
		{5, true, false, ""}:      "ask",
		{5, false, false, ""}:     "",
		{5, true, true, ""}:       "succeed",
		{5, true, true, "other"}:  "",
		{5, true, true, "me"}:     "",
		{0, true, false, ""}:      "",
		{0, true, true, ""}:       "succeed",
		{0, false, true, ""}:      "succeed",
		{0, false, true, "other"}: "",
	}
	for _, rest := range []string{"", "rests"} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			var names, want, got []string
			for of, signal := range kinds {
				name := fmt.Sprintf("%+v", of)
				names = append(names, name)
				if signal == "ask" || signal == "succeed" && rest == "" {
					want = append(want, signal+" "+name)
				}
				h := candidate("holder", store, name)
				h.LeaseRecord.Rank, h.LeaseRecord.AcceptsHandover = of.rank, of.accepts
				term := h.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				defer term.End(nil)
				if of.leaving {
					require.NoError(t, h.Table.Announce(t.Context(), term.Token(), name))
				}
				if of.successor != "" {
					require.NoError(t, h.Table.Succeed(t.Context(), of.successor, name, term.Token()))
				}
			}
			before := store.Rows()
			c := candidate("me", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == "ask" || step == "succeed" {
					time.Sleep(time.Millisecond)
				}
				return call(ctx, store)
			}), names...)
			_, err := c.Look(t.Context())
			require.NoError(t, err)
			c.preference.well = earlier(c.preference.well, known*lease)
			if rest != "" {
				c.Rest(lease)
			}
			seen, err := c.Look(t.Context())
			require.NoError(t, err)
			began := time.Now()
			left := c.signal(t.Context(), seen, time.Second)
			assert.Equal(t, time.Second, time.Since(began)+left)
			assert.GreaterOrEqual(t, time.Since(began), time.Duration(len(want))*time.Millisecond)
			for _, name := range names {
				if row := store.Rows()[name]; row.Writer != before[name].Writer {
					assert.Equal(t, succeeds+"me", row.Writer)
					got = append(got, "succeed "+name)
				}
				operator, preference, err := c.Table.Asked(t.Context(), name, table.TokenAt(before[name].Token))
				require.NoError(t, err)
				if assert.False(t, operator); preference {
					got = append(got, "ask "+name)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			assert.Equal(t, want, got)
		})
	}
}

// A follower has a tenth of the lease to name itself the successor, even if the pause before its next poll is shorter than a round trip.
// Otherwise, nobody would be the successor where Spanner is far away, and a crowd would claim at once. Requests for a handover have only
// the pause.
func TestASuccessorIsNamedEvenIfThatTakesLongerThanThePause(t *testing.T) {
	for _, c := range []struct {
		step  string
		trip  time.Duration
		lease time.Duration // of the holder
		takes time.Duration
	}{
		{"succeed", 0, lease, 0},
		{"succeed", lease / 15, lease, lease / 15},
		{"succeed", lease / 5, lease, lease / 10},
		{"succeed", lease / 30, lease / 2, lease / 30},
		{"succeed", lease / 15, lease / 2, lease / 20},
		{"succeed", lease / 5, 2 * lease, lease / 10},
		{"ask", lease / 200, lease, lease / 200},
		{"ask", lease / 15, lease, lease / 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, sent := &memstore.Store{}, 0
			h := candidate("holder", store, "m")
			h.LeaseRecord.Lease, h.LeaseRecord.Rank, h.LeaseRecord.AcceptsHandover = c.lease, 5, true
			term := h.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			defer term.End(nil)
			if c.step == "succeed" {
				require.NoError(t, h.Table.Announce(t.Context(), term.Token(), "m"))
			}
			me := candidate("me", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == c.step {
					sent++
					if Sleep(ctx, SystemClock{}, c.trip); ctx.Err() != nil {
						return ctx.Err()
					}
				}
				return call(ctx, store)
			}), "m")
			seen, err := me.Look(t.Context())
			require.NoError(t, err)
			me.preference.well = earlier(me.preference.well, known*lease)
			began := time.Now()
			left := me.signal(t.Context(), seen, lease/100)
			what := fmt.Sprintf("%+v", c)
			assert.Equal(t, 1, sent, what)
			assert.Equal(t, c.takes, time.Since(began), what)
			assert.Equal(t, max(lease/100-c.takes, 0), left, what)
			if c.step == "succeed" {
				assert.Equal(t, c.takes == c.trip, store.Rows()["m"].Writer == succeeds+"me", what)
			}
		})
	}
}
