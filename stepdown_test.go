package spindle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// The answer to StepDown is preferred to the end of its ctx, if both have come: a caller that is told that the lock is still held
// would wait for it in vain.
func TestAnAnswerThatHasComeIsPreferredToTheEndOfCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, want := range []error{nil, ErrSuperseded} {
		for range 100 {
			answer := make(chan error, 1)
			answer <- want
			assert.Equal(t, want, awaitAnswer(ctx, answer))
		}
	}
	assert.ErrorIs(t, awaitAnswer(ctx, make(chan error, 1)), context.Canceled)
	full := make(chan error, 1)
	full <- errors.New("it failed")
	assert.EqualError(t, awaitAnswer(context.Background(), full), "it failed")
}

// The gap of a handover counts from the last time at which the old leader is known to have held the lock, whatever is seen of the
// lock until the next one leads.
func TestTheGapOfAHandoverCountsFromTheFirstRelease(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0).UTC() }
	record := &table.LeaseRecord{Lease: 10 * time.Second}
	holds := func(token, beat int) table.Observation {
		return table.Observation{Name: "m", At: at(beat), Exists: true, Token: table.TokenAt(at(token)), Heartbeat: at(beat), Writer: "a", LeaseRecord: record}
	}
	free := func(since int) table.Observation {
		return table.Observation{Name: "m", At: at(since + 1), Exists: true, Token: table.TokenAt(at(since))}
	}
	claimed := func(since int) table.Observation {
		return table.Observation{Name: "m", At: at(since + 1), Exists: true, Token: table.TokenAt(at(since)), Heartbeat: at(since), Writer: "b"}
	}
	for name, c := range map[string]struct {
		seen []table.Observation
		gap  int
	}{
		"seen to be released":                  {[]table.Observation{holds(0, 5), free(7), holds(9, 9)}, 2},
		"not seen to be released":              {[]table.Observation{holds(0, 5), holds(9, 9)}, 4},
		"a claim is withdrawn":                 {[]table.Observation{holds(0, 5), free(7), claimed(8), free(11), holds(14, 14)}, 7},
		"two claims are withdrawn":             {[]table.Observation{holds(0, 5), free(7), free(11), claimed(12), free(13), holds(14, 14)}, 7},
		"a heartbeat comes after the last one": {[]table.Observation{holds(0, 5), holds(0, 6), free(7), free(7), holds(8, 8)}, 1},
	} {
		f := follower{Handover: Handover{From: leaderOf(holds(0, 0))}, held: at(0)}
		for _, o := range c.seen {
			f.see(o)
		}
		assert.Equal(t, time.Duration(c.gap)*time.Second, f.Gap, name)
	}
}
