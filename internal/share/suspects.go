package share

import (
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Suspicion records that a partition could not be claimed or released. Such a partition is suspect. It is tried again
// in a commit of its own, at growing intervals. A Suspicion is also used to record that a partition's work stalled or
// returned early.
type Suspicion struct {
	Since elect.Instant // the time of the first failure; zero: no failure
	Err   error

	tried elect.Instant // when it last failed alone
	pause time.Duration // before it may be tried again
}

func (s *Suspicion) failed() bool { return s.Since != elect.Instant{} }

// Fail records that the partition failed alone.
func (s *Suspicion) Fail(now elect.Instant, lease time.Duration, err error) {
	if !s.failed() {
		s.Since = now
	}
	s.pause = min(max(2*s.pause, lease/10), 3*lease)
	s.tried, s.Err = now, err
}

// left returns the time until the partition may be tried again.
func (s *Suspicion) left(now elect.Instant) time.Duration {
	if s.pause == 0 { // it has not failed alone, so tried is not set
		return 0
	}
	return max(s.pause-now.Ran(s.tried), 0)
}

// Backoff returns the time until the partition may be tried again.
func (e *Entry) Backoff(now elect.Instant) time.Duration {
	return max(e.Suspect.left(now), e.EarlyReturn.left(now))
}

// illegible records that a partition's rows cannot be read.
func (s *Suspicion) illegible(now elect.Instant, err error) {
	if !s.failed() {
		s.Since = now
	}
	s.Err = err
}

// Owe reports whether any partition still has to be claimed or freed after a failure.
func (all Entries) Owe() bool {
	return slices.ContainsFunc(all, func(e *Entry) bool { return e.Suspect.failed() && !e.done() })
}

// Oldest returns the partition that has been suspect longest, or zero values if none is suspect.
func (all Entries) Oldest() (name string, s Suspicion) {
	for _, e := range all {
		if e.Suspect.failed() && (!s.failed() || e.Suspect.Since.Mono < s.Since.Mono) {
			name, s = e.Name, e.Suspect
		}
	}
	return name, s
}
