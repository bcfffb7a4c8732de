package doctor

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// idle is a period without writes, in which the timestamp of a read should advance.
const idle = 50 * time.Millisecond

// advance returns how far the timestamp of reads advances while this process writes nothing.
func (e *exam) advance(bound table.Bound) time.Duration {
	keys := table.Keys{Names: []string{e.base}}
	_, first := e.read(bound, keys)
	e.pause(idle)
	_, second := e.read(bound, keys)
	return second.Sub(first)
}

// shown commits a row and then reads it. If the read has an earlier timestamp than the commit, shown returns the
// difference. Otherwise, the read must return the row.
func (e *exam) shown(bound table.Bound) (behind time.Duration) {
	name := e.base + "/shown"
	at := get(e.apply("doctor", true, name))
	rows, of := e.read(bound, table.Keys{Names: []string{name}})
	if of.Before(at) {
		return at.Sub(of)
	}
	if len(rows) != 1 || !rows[0].Token.Equal(at) {
		must(&finding{verdict: Failed, found: fmt.Sprintf("a read with timestamp %v did not return a row committed at %v", of.UTC(), at.UTC()),
			means: anOutlaw + ", because a candidate may miss the holder's latest heartbeat"})
	}
	return 0
}

func present(e *exam) string {
	on := e.advance(table.Present)
	advances(on, 0)
	var worst time.Duration
	for range 5 {
		worst = max(worst, e.shown(table.Present))
	}
	return advances(on, worst)
}

// advances judges reads with an exact staleness of zero, which locks use to detect an expired lease. The first argument
// is how far the timestamps of these reads advanced while nothing was written. The second is how far a read lagged
// behind an earlier commit in the worst case.
func advances(on, worst time.Duration) string {
	found := fmt.Sprintf("read timestamps advanced by %[2]v during %[1]v without writes", idle, round(on))
	switch {
	case on < idle/2:
		refute("read timestamps advanced by only %[2]v during %[1]v without writes", idle, round(on))
	case worst > time.Second:
		must(&finding{Warning, fmt.Sprintf("reads lagged up to %v behind earlier commits", round(worst)),
			slowOnly + ", because each takeover takes that much longer", reportIt})
	case worst > 0:
		return found + fmt.Sprintf("; reads lagged up to %v behind earlier commits, which only makes takeovers slower", round(worst))
	}
	return found + ", and reads returned earlier commits"
}

func strong(e *exam) string {
	for range 5 {
		isStrong(idle, e.shown(table.Strong))
	}
	return isStrong(e.advance(table.Strong), 0)
}

// isStrong judges strong reads, with the same parameters as advances.
func isStrong(on, worst time.Duration) string {
	switch {
	case worst > 0:
		refute("the timestamp of a strong read is %v earlier than a commit that was acknowledged before the read began", round(worst))
	case on < idle/2:
		must(&finding{Note, fmt.Sprintf("strong reads returned earlier commits, but their timestamps advanced by only %[2]v during %[1]v without writes", idle, round(on)),
			"locks are not affected, because they do not use strong reads to detect an expired lease", "nothing"})
	}
	return fmt.Sprintf("strong reads returned earlier commits, and their timestamps advanced by %[2]v during %[1]v without writes", idle, round(on))
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
func clockRate(e *exam) string {
	first := e.instant()
	compare := func(pause time.Duration) Clock {
		e.pause(pause)
		return drift(first, e.instant())
	}
	blur := float64(first.received.Sub(first.sent))
	c := compare(min(max(time.Duration(blur/precision), time.Second), longestComparison))
	if !c.isKnown() {
		c = compare(longestComparison - c.Over)
	}
	e.clock = &c
	return c.judge()
}

// isKnown reports whether the measurement is precise enough for one of three verdicts: the clock is too slow, it is
// too fast, or it is not too slow.
func (c Clock) isKnown() bool {
	return c.Drift-c.Within > maxDrift || c.Drift+c.Within < -maxDrift || c.Within <= maxDrift && c.Drift+c.Within <= maxDrift
}

func (c Clock) judge() string {
	found := fmt.Sprintf("%+.2f%% ± %.2f%% over %v, offset %v", 100*c.Drift, 100*c.Within, round(c.Over), round(c.Offset))
	switch {
	case c.Drift-c.Within > maxDrift:
		refute("this machine's clock runs slower than Spanner's: %s", found)
	case c.Drift+c.Within < -maxDrift:
		must(&finding{Warning, "this machine's clock runs faster than Spanner's: " + found,
			"a holder gives up its lock earlier than necessary, but two processes never hold the lock at the same time", "fix this machine's clock"})
	case !c.isKnown():
		must(&finding{Note, "the round trips are too slow to measure the clock: " + found, "it is not known whether this machine's clock runs more than 1 % slow", "run doctor again on a machine closer to the database"})
	}
	return found + ", which is within the limit"
}

// sample is one reading of both clocks. Spanner's time was taken somewhere between the two local times.
type sample struct {
	sent, received time.Time
	at             time.Time
}

// instant takes a few samples and returns the one with the shortest round trip.
func (e *exam) instant() (best sample) {
	for i := range 5 {
		s := sample{sent: time.Now()}
		_, s.at = e.read(table.Present, table.Keys{Names: []string{e.base}})
		s.received = time.Now()
		if i == 0 || s.received.Sub(s.sent) < best.received.Sub(best.sent) {
			best = s
		}
	}
	return best
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
