package doctor

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// idle is how long advance waits between its two reads.
const idle = 50 * time.Millisecond

// advance returns how far the timestamps of reads advance while this process writes nothing.
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

// advances judges reads with an exact staleness of zero, which locks use to detect that a lease has expired. The first
// argument is how far the timestamps of these reads advanced while this process wrote nothing. The second is the
// longest time by which such a read lagged behind an earlier commit.
func advances(on, worst time.Duration) string {
	found := fmt.Sprintf("read timestamps advanced by %[2]v in %[1]v without writes", idle, round(on))
	switch {
	case on < idle/2:
		refute("read timestamps advanced by only %[2]v in %[1]v without writes", idle, round(on))
	case worst > time.Second:
		must(&finding{Warning, fmt.Sprintf("reads lagged behind earlier commits by up to %v", round(worst)),
			slowOnly + ", because takeovers can take that much longer", reportIt})
	case worst > 0:
		return found + fmt.Sprintf("; reads lagged behind earlier commits by up to %v, which delays takeovers but does no other harm", round(worst))
	}
	return found + ", and reads saw all earlier commits"
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
		must(&finding{Note, fmt.Sprintf("strong reads saw all earlier commits, but their timestamps advanced by only %[2]v in %[1]v without writes", idle, round(on)),
			"locks are not affected, because they do not use strong reads to detect that a lease has expired", "nothing"})
	}
	return fmt.Sprintf("strong reads saw all earlier commits, and their timestamps advanced by %[2]v in %[1]v without writes", idle, round(on))
}

// Clock is a comparison of this machine's clock with Spanner's during the run.
type Clock struct {
	Offset time.Duration `json:"offset_ns"` // how far Spanner's clock is ahead of this machine's, in nanoseconds
	Drift  float64       `json:"drift"`     // 0.01: this machine's clock runs 1% slow
	Within float64       `json:"within"`    // the error of the drift, plus or minus
	Over   time.Duration `json:"over_ns"`   // how long the clocks were compared, in nanoseconds
}

const (
	maxDrift  = 0.01 // the drift that a holder's deadline allows for
	precision = maxDrift / 2

	longestComparison = 20 * time.Second
)

// clockRate measures how fast this machine's clock runs compared with Spanner's. It takes two samples of both clocks.
// Slow round trips make the samples inexact, so the slower they are, the longer clockRate pauses between the samples.
// If the result is still too uncertain, clockRate waits until longestComparison has passed since the first sample, and
// then takes a third one.
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

// isKnown reports whether the measurement is precise enough to decide that this machine's clock is too slow, too fast,
// or at least not too slow.
func (c Clock) isKnown() bool {
	return c.Drift-c.Within > maxDrift || c.Drift+c.Within < -maxDrift || c.Within <= maxDrift && c.Drift+c.Within <= maxDrift
}

func (c Clock) judge() string {
	found := fmt.Sprintf("drift %+.2f%% ± %.2f%% over %v, offset %v", 100*c.Drift, 100*c.Within, round(c.Over), round(c.Offset))
	switch {
	case c.Drift-c.Within > maxDrift:
		refute("this machine's clock runs slower than Spanner's: %s", found)
	case c.Drift+c.Within < -maxDrift:
		must(&finding{Warning, "this machine's clock runs faster than Spanner's: " + found,
			"locks are safe, but a holder whose heartbeats fail gives up its lock earlier than necessary", "fix this machine's clock"})
	case !c.isKnown():
		must(&finding{Note, "the round trips are too slow to measure the clock: " + found, "it is not known whether this machine's clock runs more than 1% slow", "run doctor again when round trips are faster, or check this machine's time synchronization"})
	}
	return found + "; the drift is acceptable"
}

// sample is one reading of both clocks. Spanner's clock was read at some moment between the two local times.
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

// drift compares how far the two clocks advanced between two samples.
func drift(first, last sample) Clock {
	passed := float64(last.at.Sub(first.at))
	longest, shortest := last.received.Sub(first.sent), last.sent.Sub(first.received)
	low, high := passed/float64(longest)-1, passed/float64(max(shortest, 1))-1
	return Clock{
		Offset: last.at.Sub(last.sent.Add(last.received.Sub(last.sent) / 2)),
		Drift:  (low + high) / 2, Within: (high - low) / 2, Over: (longest + shortest) / 2,
	}
}
