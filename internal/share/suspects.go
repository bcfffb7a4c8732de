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

// Suspects are the partitions that could not be claimed or released.
type Suspects []*Entry

// Add records that a partition failed alone.
func (v *Suspects) Add(e *Entry, now elect.Instant, lease time.Duration, err error) {
	if !e.suspect.failed() {
		*v = append(*v, e)
	}
	e.suspect.Fail(now, lease, err)
}

// illegible records that a partition's rows cannot be read.
func (v *Suspects) illegible(e *Entry, now elect.Instant, err error) {
	if !e.suspect.failed() {
		e.suspect = Suspicion{Since: now, Err: err}
		*v = append(*v, e)
	}
}

// absolve trusts the suspects that no longer have to be claimed or released, those that another holder has, and those
// whose rows can be read again.
func (v *Suspects) absolve(legible, taken []*Entry) {
	for _, e := range slices.Clone(*v) {
		if e.done() || slices.Contains(taken, e) || e.suspect.pause == 0 && slices.Contains(legible, e) {
			v.trust(e)
		}
	}
}

// trust records that a partition was claimed or released, or no longer has to be.
func (v *Suspects) trust(e *Entry) {
	e.suspect = Suspicion{}
	*v = slices.DeleteFunc(*v, func(s *Entry) bool { return s == e })
}

// Owe reports whether any partition still has to be claimed or freed after a failure.
func (v Suspects) Owe() bool {
	return slices.ContainsFunc(v, func(e *Entry) bool { return !e.done() })
}

// Oldest returns the suspect partition that has failed for longest, or nil.
func (v Suspects) Oldest() (name string, s Suspicion) {
	for _, e := range v {
		if !s.failed() || e.suspect.Since.Mono < s.Since.Mono {
			name, s = e.Name, e.suspect
		}
	}
	return name, s
}
