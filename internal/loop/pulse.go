package loop

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Pulse records when a loop last succeeded, and why it has not succeeded since. The loop updates it, and any goroutine
// can read it. The zero Pulse is for a loop that is not running.
type Pulse struct{ last atomic.Pointer[beat] }

type beat struct {
	at  elect.Instant // zero if the loop has just been started
	err error
}

// Begin notes that the loop is being started.
func (p *Pulse) Begin() { p.last.Store(&beat{}) }

// Beat notes a success, or that the loop is running.
func (p *Pulse) Beat(at elect.Instant) { p.last.Store(&beat{at: at}) }

// Fail notes the error that prevents the next success.
func (p *Pulse) Fail(err error) { p.last.Store(&beat{at: p.last.Load().at, err: err}) }

// Stop notes that the loop has ended.
func (p *Pulse) Stop() { p.last.Store(nil) }

// Going reports whether the loop is running.
func (p *Pulse) Going() bool { return p.last.Load() != nil }

// Age returns how long the machine has run since the last success, and whether the loop is running.
func (p *Pulse) Age(c elect.Clock) (time.Duration, bool) {
	b := p.last.Load()
	switch {
	case b == nil:
		return 0, false
	case b.at == (elect.Instant{}):
		return 0, true
	}
	return c.Now().Ran(b.at), true
}

// Check returns nil if age is less than three lease durations, or less than 10 s if that is longer. Otherwise, it
// returns an error that says what is wrong and since when. This error wraps the last error that the loop has noted
// since its last success, if any. The argument what is the first part of the text, such as "no poll has succeeded".
func (p *Pulse) Check(c elect.Clock, lease, age time.Duration, what string) error {
	if age < max(3*lease, 10*time.Second) {
		return nil
	}
	since := c.Now().Time().Add(-age).UTC().Format(time.RFC3339)
	err := fmt.Errorf("%s since %s (%v ago)", what, since, age.Round(time.Second))
	if b := p.last.Load(); b != nil && b.err != nil {
		err = fmt.Errorf("%w: %w", err, b.err)
	}
	return err
}
