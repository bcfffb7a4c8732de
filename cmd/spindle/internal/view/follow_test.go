package view

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A look is one read of a table: how long it takes, and whether it fails then.
type look struct {
	takes time.Duration
	fails bool
}

// followed is what a follower does with some looks: when each begins, when what was found is shown, and what is said.
type followed struct {
	began, shown []time.Duration
	said         []string
	err          error
}

const (
	noAnswer = "no answer from Spanner for "
	noRead   = "can't read the locks, will try again: "
	again    = "the locks can be read again"
)

// followsBy is what a follower with these times should do, one look after the other.
func followsBy(every, patience, timeout time.Duration, looks []look) (f followed) {
	var now, before time.Duration
	asOf, failing := "", false
	fail := func(text string) {
		if !failing {
			failing, f.said = true, append(f.said, text)
		}
	}
	for _, l := range looks {
		f.began = append(f.began, now)
		took := min(l.takes, timeout)
		if took > patience {
			fail(noAnswer + patience.String() + asOf)
		}
		now += took
		pause := every
		switch ok := !l.fails && l.takes <= timeout; {
		case ok:
			if failing {
				failing, f.said = false, append(f.said, again)
			}
			f.shown = append(f.shown, now)
			asOf = "; the last output is as of " + time.Unix(0, 0).UTC().Add(now).Format("15:04:05Z")
			if slow := min(took, before); slow > 100*time.Millisecond {
				pause = max(pause, min(4*slow, 15*time.Second))
			}
			before = took
		case len(f.shown) == 0:
			f.err = commandtest.Away
			if !l.fails || l.takes > timeout {
				f.err = context.DeadlineExceeded
			}
			return f
		default:
			fail(noRead)
			before = 0
		}
		now += pause
	}
	return f
}

// follows is what a follower does.
func follows(ctx context.Context, every, patience, timeout time.Duration, looks []look) (f followed) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	start := time.Now()
	of := &follower{Database: &database.Database{Timeout: timeout}, every: every, patience: patience,
		show: func(_ []operator.Listing, at time.Time) error {
			f.shown = append(f.shown, at.Sub(time.Unix(0, 0)))
			return nil
		},
		read: func(ctx context.Context, _ table.Table) ([]operator.Listing, time.Time, error) {
			if len(f.began) == len(looks) {
				stop()
				return nil, time.Time{}, ctx.Err()
			}
			l := looks[len(f.began)]
			f.began = append(f.began, time.Since(start))
			select {
			case <-time.After(l.takes):
			case <-ctx.Done():
				return nil, time.Time{}, ctx.Err()
			}
			if l.fails {
				return nil, time.Time{}, commandtest.Away
			}
			return nil, time.Unix(0, 0).Add(time.Since(start)).In(time.FixedZone("there", 3600)), nil
		}}
	f.said = commandtest.Complaints(func() { f.err = of.follow(ctx, table.Table{}) })
	return f
}

// Watch and ls --watch read at their pace, show what they have read, and say once that reads have begun to fail or hang,
// and once that they succeed again: an operator who looks at an old list must know it, and a large table must not be read
// all the time. This is compared with a plain calculation, for looks that take and fail at random.
func TestAFollowedTableIsReadAtItsPaceAndEachOutageIsSaidOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	takes := []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, time.Second, 2500 * time.Millisecond, 4500 * time.Millisecond, 7 * time.Second, time.Minute}
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			timeout, patience := []time.Duration{3 * time.Second, 5 * time.Second, time.Hour}[random.IntN(3)], []time.Duration{2 * time.Second, 4 * time.Second}[random.IntN(2)]
			every := []time.Duration{10 * time.Millisecond, time.Second, 20 * time.Second}[random.IntN(3)]
			looks := make([]look, 12)
			slowest := 1 + random.IntN(len(takes))
			for i := range looks {
				looks[i] = look{takes[random.IntN(slowest)], i > random.IntN(2) && random.IntN(3) == 0}
			}
			want, got := followsBy(every, patience, timeout, looks), follows(t.Context(), every, patience, timeout, looks)
			if want.err != nil {
				require.ErrorIs(t, got.err, want.err)
			} else {
				require.NoError(t, got.err)
			}
			require.Equal(t, want.began, got.began, "%v", looks)
			require.Equal(t, want.shown, got.shown, "%v", looks)
			require.Len(t, got.said, len(want.said), "%v: %q", looks, got.said)
			for i, text := range want.said {
				require.Contains(t, got.said[i], `"`+text, "%v", looks)
				require.Equal(t, strings.Contains(text, "as of"), strings.Contains(got.said[i], "as of"), "%v", looks)
			}
		})
	}
}

// A signal ends watch and ls --watch at once, also in the middle of a read, and is no failure. What can't be shown ends
// them too.
func TestAFollowerEndsAtOnce(t *testing.T) {
	looks := []look{{0, false}, {300 * time.Millisecond, false}, {300 * time.Millisecond, true}, {0, false}, {time.Hour, false}}
	for at := 50 * time.Millisecond; at < 8*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), at)
			defer stop()
			start := time.Now()
			got := follows(ctx, time.Second, 2*time.Second, time.Hour, looks)
			assert.NoError(t, got.err)
			assert.Equal(t, at, time.Since(start))
			want := 0
			for _, said := range []time.Duration{2600 * time.Millisecond, 3600 * time.Millisecond, 6600 * time.Millisecond} { // the failure, the next look, and the one that hangs
				if at > said {
					want++
				}
			}
			assert.Len(t, got.said, want, "stopped after %v: %q", at, got.said)
		})
	}
	for _, first := range []look{{3 * time.Second, false}, {3 * time.Second, true}, {time.Hour, false}} {
		for at := 50 * time.Millisecond; at < 3*time.Second; at += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), at)
				defer stop()
				got := follows(ctx, time.Second, time.Minute, time.Hour, []look{first})
				assert.NoError(t, got.err, "in the first look, after %v", at)
				assert.Empty(t, got.said)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		broken, reads := errors.New("the pipe is broken"), 0
		f := &follower{Database: &database.Database{Timeout: time.Second}, every: time.Second, patience: time.Second,
			show: func([]operator.Listing, time.Time) error { return broken },
			read: func(context.Context, table.Table) ([]operator.Listing, time.Time, error) {
				reads++
				return nil, time.Now(), nil
			}}
		assert.ErrorIs(t, f.follow(t.Context(), table.Table{}), broken)
		assert.Equal(t, 1, reads)
	})
}

// Watch and ls --watch run for days: each of their messages says when it was.
func TestAFollowerSaysWhenItsMessagesWere(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:1") // nothing is asked there
	said := commandtest.Captured(t)
	ctx, stop := context.WithCancel(t.Context())
	f := &follower{Database: &database.Database{}, read: func(ctx context.Context, _ table.Table) ([]operator.Listing, time.Time, error) {
		assert.Eventually(t, func() bool { return said.String() != "" }, time.Minute, time.Millisecond)
		stop()
		return nil, time.Time{}, ctx.Err()
	}}
	f.Flags(pflag.NewFlagSet("", pflag.ContinueOnError))
	require.NoError(t, f.FlagSet.Parse([]string{"--db", "projects/p/instances/i/databases/d", "--timeout", "1h"}))
	require.NoError(t, f.run(ctx))
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT[0-9:.]+Z spindle: no answer from Spanner`, said.String())
}
