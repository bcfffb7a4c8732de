package share

import (
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Suspicion records that a partition could not be claimed or released. Such a partition is suspect. It is tried again
// in a commit of its own, at growing intervals.
type Suspicion struct {
	Since elect.Instant // the time of the first failure; zero: no failure
	Err   error

	until elect.Instant // when it may be tried again
	pause time.Duration // the last pause
}

func (s *Suspicion) failed() bool { return s.Since != elect.Instant{} }

// Fail records that the partition failed alone.
func (s *Suspicion) Fail(now elect.Instant, lease time.Duration, err error) {
	if !s.failed() {
		s.Since = now
	}
	s.pause = min(max(2*s.pause, lease/10), 3*lease)
	s.until, s.Err = now, err
	s.until.Mono += int64(s.pause)
	s.until.Wall += int64(s.pause)
}

// left returns the time until the partition may be tried again.
func (s *Suspicion) left(now elect.Instant) time.Duration {
	if !s.failed() {
		return 0
	}
	return max(time.Duration(s.until.Mono-now.Mono), 0)
}

// illegible records that a partition's rows cannot be read.
func (s *Suspicion) illegible(now elect.Instant, err error) {
	if !s.failed() {
		*s = Suspicion{Since: now, Err: err}
	}
}

// Owe reports whether any partition still has to be claimed or freed after a failure.
func (all Entries) Owe() bool {
	return slices.ContainsFunc(all, func(e *Entry) bool { return e.Suspect.failed() && !e.done() })
}

// Oldest returns the suspect partition that has failed for longest, or nil.
func (all Entries) Oldest() (name string, s Suspicion) {
	for _, e := range all {
		if e.Suspect.failed() && (!s.failed() || e.Suspect.Since.Mono < s.Since.Mono) {
			name, s = e.Name, e.Suspect
		}
	}
	return name, s
}
