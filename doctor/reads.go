package doctor

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// idle is a period without writes, in which the timestamp of a read should advance.
const idle = 50 * time.Millisecond

// advance returns how far the timestamp of reads advances while this process writes nothing.
func (e *exam) advance(ctx context.Context, bound table.Bound) (time.Duration, error) {
	keys := table.Keys{Names: []string{e.base}}
	_, first, err := e.Read(ctx, "doctor-read", bound, keys)
	if err != nil {
		return 0, err
	}
	e.pause(ctx, idle)
	_, second, err := e.Read(ctx, "doctor-read", bound, keys)
	return second.Sub(first), err
}

// shown commits a row and then reads it. If the read has an earlier timestamp than the commit, shown returns the
// difference. Otherwise, the read must return the row. If it does not, shown returns an error.
func (e *exam) shown(ctx context.Context, bound table.Bound) (behind time.Duration, err error) {
	name := e.base + "/shown"
	at, err := e.apply(ctx, "doctor", true, spanner.InsertOrUpdate(e.spanner.Table, []string{table.ColName, table.ColToken}, []any{name, spanner.CommitTimestamp}))
	if err != nil {
		return 0, err
	}
	rows, of, err := e.Read(ctx, "doctor-read", bound, table.Keys{Names: []string{name}})
	switch {
	case err != nil:
		return 0, err
	case of.Before(at):
		return at.Sub(of), nil
	case len(rows) != 1 || !rows[0].Token.Equal(at):
		return 0, &finding{verdict: Failed, found: fmt.Sprintf("a read with timestamp %v did not return a row committed at %v", of.UTC(), at.UTC()),
			means: anOutlaw + ", because a candidate may miss the holder's latest heartbeat"}
	}
	return 0, nil
}

func (e *exam) present(ctx context.Context) (string, error) {
	on, err := e.advance(ctx, table.Present)
	if err == nil {
		_, err = advances(on, 0)
	}
	if err != nil {
		return "", err
	}
	var worst time.Duration
	for range 5 {
		behind, err := e.shown(ctx, table.Present)
		if err != nil {
			return "", err
		}
		worst = max(worst, behind)
	}
	return advances(on, worst)
}

// advances judges reads with an exact staleness of zero, which locks use to detect an expired lease. The on parameter
// is how far the timestamps of these reads advanced while nothing was written. The worst parameter is how far a read
// lagged behind an earlier commit in the worst case.
func advances(on, worst time.Duration) (string, error) {
	found := fmt.Sprintf("read timestamps advanced by %[2]v during %[1]v without writes", idle, round(on))
	switch {
	case on < idle/2:
		return "", broken("read timestamps advanced by only %[2]v during %[1]v without writes", idle, round(on))
	case worst > time.Second:
		return "", &finding{Warning, fmt.Sprintf("reads lagged up to %v behind earlier commits", round(worst)),
			slowOnly + ", because each takeover takes that much longer", "report this output"}
	case worst > 0:
		return found + fmt.Sprintf("; reads lagged up to %v behind earlier commits, which only makes takeovers slower", round(worst)), nil
	}
	return found + ", and reads returned earlier commits", nil
}

func (e *exam) strong(ctx context.Context) (string, error) {
	for range 5 {
		behind, err := e.shown(ctx, table.Strong)
		if err == nil {
			_, err = isStrong(idle, behind)
		}
		if err != nil {
			return "", err
		}
	}
	on, err := e.advance(ctx, table.Strong)
	if err != nil {
		return "", err
	}
	return isStrong(on, 0)
}

// isStrong judges strong reads, with the same parameters as advances.
func isStrong(on, worst time.Duration) (string, error) {
	switch {
	case worst > 0:
		return "", broken("the timestamp of a strong read is %v earlier than a commit that was acknowledged before the read began", round(worst))
	case on < idle/2:
		return "", &finding{Note, fmt.Sprintf("strong reads returned earlier commits, but their timestamps advanced by only %[2]v during %[1]v without writes", idle, round(on)),
			"locks are not affected, because they do not use strong reads to detect an expired lease", "nothing"}
	}
	return fmt.Sprintf("strong reads returned earlier commits, and their timestamps advanced by %[2]v during %[1]v without writes", idle, round(on)), nil
}

// Clock is a comparison of this machine's clock with Spanner's during the run.
type Clock struct {
	Offset time.Duration `json:"offset_ns"` // how far Spanner's clock is ahead of this machine's, in nanoseconds
	Drift  float64       `json:"drift"`     // 0.01: this machine's clock runs 1 % slow
	Within float64       `json:"within"`    // the error of the drift, plus or minus
	Over   time.Duration `json:"over_ns"`   // how long the clocks were compared, in nanoseconds
}

const (
	maxDrift  = 0.01 // the drift that a holder's deadline allows for
	precision = maxDrift / 2

	longestComparison = 20 * time.Second
)

// clockRate measures how fast this machine's clock runs compared with Spanner's. It samples both clocks twice. The
// pause between the samples is long enough that the round trips add little uncertainty to the result. If the result is
// still too uncertain, clockRate pauses again and takes a third sample.
func (e *exam) clockRate(ctx context.Context) (string, error) {
	first, err := e.instant(ctx)
	if err != nil {
		return "", err
	}
	blur := float64(first.received.Sub(first.sent))
	c, err := e.compare(ctx, first, min(max(time.Duration(blur/precision), time.Second), longestComparison))
	if err == nil && !c.isKnown() {
		c, err = e.compare(ctx, first, longestComparison-c.Over)
	}
	if err != nil {
		return "", err
	}
	e.clock = &c
	return c.judge()
}

func (e *exam) compare(ctx context.Context, first sample, pause time.Duration) (Clock, error) {
	e.pause(ctx, pause)
	last, err := e.instant(ctx)
	if err != nil {
		return Clock{}, err
	}
	return drift(first, last), nil
}

// isKnown reports whether the measurement is precise enough to tell that the clock runs too slow, that it runs too
// fast, or that it does not run too slow.
func (c Clock) isKnown() bool {
	return c.Drift-c.Within > maxDrift || c.Drift+c.Within < -maxDrift || c.Within <= maxDrift && c.Drift+c.Within <= maxDrift
}

func (c Clock) judge() (string, error) {
	found := fmt.Sprintf("%+.2f%% ± %.2f%% over %v, offset %v", 100*c.Drift, 100*c.Within, round(c.Over), round(c.Offset))
	switch {
	case c.Drift-c.Within > maxDrift:
		return "", broken("this machine's clock runs slower than Spanner's: %s", found)
	case c.Drift+c.Within < -maxDrift:
		return "", &finding{Warning, "this machine's clock runs faster than Spanner's: " + found,
			"a holder gives up its lock earlier than necessary, but two processes never hold the lock at the same time", "fix this machine's clock"}
	case !c.isKnown():
		return "", &finding{Note, "the round trips are too slow to measure the clock: " + found, "it is not known whether this machine's clock runs more than 1 % slow", "run doctor again on a machine closer to the database"}
	}
	return found + ", which is within the limit", nil
}

// sample is one reading of both clocks. Spanner's time was taken somewhere between the two local times.
type sample struct {
	sent, received time.Time
	at             time.Time
}

// instant takes a few samples and returns the one with the shortest round trip.
func (e *exam) instant(ctx context.Context) (best sample, err error) {
	for i := range 5 {
		s := sample{sent: time.Now()}
		if _, s.at, err = e.Read(ctx, "doctor-read", table.Present, table.Keys{Names: []string{e.base}}); err != nil {
			return sample{}, err
		}
		s.received = time.Now()
		if i == 0 || s.received.Sub(s.sent) < best.received.Sub(best.sent) {
			best = s
		}
	}
	return best, nil
}

// drift returns how much faster Spanner's clock ran than this machine's, as a fraction of this machine's elapsed time.
func drift(first, last sample) Clock {
	passed := float64(last.at.Sub(first.at))
	longest, shortest := last.received.Sub(first.sent), last.sent.Sub(first.received)
	low, high := passed/float64(longest)-1, passed/float64(max(shortest, 1))-1
	return Clock{
		Offset: last.at.Sub(last.sent.Add(last.received.Sub(last.sent) / 2)),
		Drift:  (low + high) / 2, Within: (high - low) / 2, Over: (longest + shortest) / 2,
	}
}

const (
	trips     = 30
	tripsTime = 10 * time.Second // the time after which to stop early on a slow network
	enough    = 5
)

// measure measures the round trips of each kind of request.
func (e *exam) measure(ctx context.Context) (string, error) {
	name := e.base + "/round-trips"
	if err := e.write(ctx, table.Insert, name, ""); err != nil {
		return "", err
	}
	keys := table.Keys{Names: []string{name}}
	beat := []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}}}}
	kinds := []func() error{
		func() error { _, _, err := e.Read(ctx, "doctor-read", table.Present, keys); return err },
		func() error { return e.Commit(ctx, "doctor", beat) },
		func() error {
			_, err := e.Transact(ctx, "doctor", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
				_, err := r.Read(ctx, keys)
				return beat, err
			})
			return err
		},
	}
	took := make([][]time.Duration, len(kinds))
	for start := time.Now(); len(took[0]) < trips && (len(took[0]) < enough || time.Since(start) < tripsTime); {
		for i, do := range kinds {
			sent := time.Now()
			if err := do(); err != nil && !overrun(err) {
				return "", err
			}
			took[i] = append(took[i], time.Since(sent))
		}
	}
	e.roundTrips = &RoundTrips{roundTripOf(took[0]), roundTripOf(took[1]), roundTripOf(took[2])}
	return fmt.Sprintf("read: %v; commit: %v; transaction: %v; shortest possible lease: %v", e.roundTrips.Read, e.roundTrips.Commit, e.roundTrips.Transaction, e.roundTrips.Lease()), nil
}
