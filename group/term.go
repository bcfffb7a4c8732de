package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// errUseless ends the term of a member that can take no partition, or free none, so that others take them.
var errUseless = errors.New("no partition could be taken, or freed, for two leases")

// term is one term of a member: the partitions that it has end with it. Its state belongs to the loop's goroutine, but
// for what Has looks at.
type term struct {
	*member
	lease   *elect.Term
	reports *telemetry.Term
	hold    table.Hold // the member's lock, and the token
	slot    int

	// looked is the instant before the last acknowledged look was sent. A member that can't look stops, even if its
	// heartbeats are acknowledged: it would not see that others have its partitions, as somebody deleted rows by hand.
	looked atomic.Pointer[elect.Instant]
	blind  *time.Timer

	have  map[*share]*holding // acted on, or told and not given yet
	loose map[*share]bool     // the table may show them with this member, and nobody here acts on them

	slots   []int // of the members among which the partitions are spread
	mine    map[*share]bool
	elder   bool            // a newer list is there
	changed elect.Instant   // when the spread changed, or something was taken
	turn    int             // how many of what is wanted were looked at in turn
	open    bool            // all that the last look was about was free
	telling alarm           // tell more work
	surveys map[*share]bool // the next look has to read their lease rows

	next    alarm         // look
	took    time.Duration // the last one
	skip    int           // looks that don't read the members
	crowd   int           // the members that the last look has shown
	giving  alarm         // give
	failing elect.Instant // since when nothing can be done that only this member can do
	crowded elect.Instant // since when takes are aborted
	retry   elect.Backoff // of looks
	redo    elect.Backoff // of what is done to partitions

	why        error           // the term is being given up
	marked     bool            // the others were told that
	announcing <-chan struct{} // closed once an announcement has ended; nil: there was none
	idle       bool            // it was said that work has returned early
}

func newTerm(m *member, lease *elect.Term) *term {
	name := lease.Names()[0]
	part, _ := table.PartOf(name)
	t := &term{member: m, lease: lease, hold: table.Hold{Name: name, Token: lease.Token()}, slot: part.Slot,
		have: map[*share]*holding{}, loose: map[*share]bool{}, surveys: map[*share]bool{}}
	t.retry.Max, t.redo.Max = m.config.Lease/3, m.config.Lease/3
	now := m.config.Clock.Now()
	t.looked.Store(&now)
	t.blind = m.config.Clock.AfterFunc(t.limit(), func() { lease.Tell(spindle.ErrExpired) })
	t.next.set(m.config.Clock, 0)
	return t
}

// limit is how long after a look was sent the member stops by itself.
func (t *term) limit() time.Duration { return elect.Limit(t.config.Lease) }

// extend moves the deadline of looks, unless it has passed.
func (t *term) extend(sent elect.Instant) bool {
	if t.left() <= 0 || !t.blind.Stop() {
		return false
	}
	t.looked.Store(&sent)
	t.blind.Reset(t.left())
	return true
}

// left is the time until the deadline of looks.
func (t *term) left() time.Duration {
	return t.limit() - t.config.Clock.Now().Since(*t.looked.Load())
}

// try limits one attempt of whatever step to two thirds of what is left: an answer that does not come costs no term, if the
// next does.
func (t *term) try(ctx context.Context, step func(context.Context) error) error {
	if left := t.left(); left > 0 && !t.leaving() {
		limited, cancel := context.WithTimeout(ctx, max(left*2/3, t.config.Lease/50))
		defer cancel()
		ctx = limited
	}
	return t.member.try(ctx, step)
}

// beforeRetry is the pause after a look that failed: at most half of what is left, so that there is a next one.
func (t *term) beforeRetry() time.Duration {
	pause := t.retry.Pause(t.config.Clock)
	if left := t.left(); left > 0 {
		pause = min(pause, max(left/2, t.config.Lease/50))
	}
	return pause
}

// acts reports whether partitions may be acted on.
func (t *term) acts() bool { return t.lease.Held() && t.lease.Context().Err() == nil }

func (t *term) leaving() bool { return t.why != nil }

// lookIsDue reports whether what is done now has to wait for a look.
func (t *term) lookIsDue() bool {
	return t.config.Clock.Now().Since(*t.looked.Load()) >= t.config.Lease/3
}

// soon makes the next look come in d, or earlier.
func (t *term) soon(d time.Duration) { t.next.sooner(t.config.Clock, d) }

// run keeps the term until it is lost, or is given up and all work has returned. An error says that a stop could not
// be completed.
func (t *term) run(ctx context.Context) error {
	stop, beat := make(chan struct{}), make(chan error, 1)
	go func() { beat <- t.lease.Renew(t.config.Heartbeat, stop) }()
	defer t.blind.Stop()
	if !t.config.Handover { // at once, even if this goroutine is waiting for an answer
		defer context.AfterFunc(ctx, func() { t.lease.Tell(context.Cause(ctx)) })()
	}
	running := context.WithoutCancel(ctx)
	ended, announced := ctx.Done(), (<-chan struct{})(nil)
	wake := t.config.Clock.Timer(0)
	defer wake.Stop()
	for !t.finished() {
		if ended != nil && ctx.Err() != nil { // before anything else begins
			ended, announced = nil, t.announce(ctx)
		}
		wake.Reset(max(min(t.next.left(t.config.Clock), t.giving.left(t.config.Clock), t.telling.left(t.config.Clock)), 0))
		select {
		case reason := <-beat:
			t.end(reason)
			return nil
		case <-t.over(ctx):
			if ctx.Err() != nil {
				continue // both: it is told to stop
			}
			close(stop)
			<-beat
			t.end(context.Cause(t.lease.Context()))
			return nil
		case <-t.patience:
			if t.collect(); !t.works(false) { // both: it was in time, or the term has begun only now
				t.tellAll(context.Cause(ctx))
				continue
			}
			close(stop)
			<-beat
			t.end(stopped(ctx))
			return nil // outlive says what has not returned
		case <-ended: // which the next round announces
		case <-announced:
			announced = nil
			t.tellAll(context.Cause(ctx))
		case <-t.returned.wake:
			t.collect()
		case <-wake.C: // after whatever else has happened by now
			t.goOn(running)
		}
	}
	close(stop)
	if reason := <-beat; reason != nil {
		t.end(reason)
		return nil
	}
	return t.release(ctx)
}

// finished reports whether everything can be given up at once: the member leaves, and all its work has returned.
func (t *term) finished() bool {
	return t.leaving() && t.lease.Context().Err() != nil && !t.works(false)
}

// goOn does what is due.
func (t *term) goOn(ctx context.Context) {
	if t.giving.left(t.config.Clock) <= 0 {
		t.give(ctx)
	}
	if t.next.left(t.config.Clock) <= 0 {
		t.look(ctx)
		t.remind()
	}
	if t.telling.left(t.config.Clock) <= 0 {
		t.tellMore()
	}
	if t.useless() {
		t.why = errUseless
		t.mark(ctx)
		t.tellAll(errUseless)
	}
}

// over is closed once the term has ended by itself.
func (t *term) over(ctx context.Context) <-chan struct{} {
	if t.leaving() || ctx.Err() != nil {
		return nil
	}
	return t.lease.Context().Done()
}

// useless reports whether the member keeps partitions from others that it can't take, or free.
func (t *term) useless() bool {
	return !t.leaving() && t.failing != (elect.Instant{}) && t.config.Clock.Now().Since(t.failing) >= 2*t.config.Lease
}

// announce says that the member is leaving. What it returns is closed when its work is to be told.
func (t *term) announce(ctx context.Context) <-chan struct{} {
	t.why = stopped(ctx)
	done := make(chan struct{})
	if !t.config.Handover || !t.works(false) && t.config.Work != nil {
		close(done)
		return done
	}
	t.log.Info("leaving", "slot", t.hold.Name, "token", t.hold.Token)
	t.emit(spindle.Leaving, elect.Event{Token: t.hold.Token})
	t.reports.Leaving(t.lease.Context())
	t.marked, t.announcing = true, done
	go func() {
		defer close(done)
		t.lease.Announce(t.lease.Context())
	}()
	return done
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("%w: %w", spindle.ErrStopped, context.Cause(ctx))
}

// tellAll tells all work that the term ends. What it leaves is given if some does not return; else it goes with the
// member's lock.
func (t *term) tellAll(reason error) {
	for _, h := range t.have {
		if !h.told {
			h.tell(reason)
			t.giving.sooner(t.config.Clock, t.config.Lease/50)
		}
	}
	t.lease.Tell(reason)
}

// tell tells the work of one partition, which is given once that has returned.
func (t *term) tell(h *holding, reason error) {
	h.tell(reason)
	if !h.working {
		t.giving.sooner(t.config.Clock, 0)
	}
}

// collect takes in what work has returned. What is to be given is given at once if it was the last, or a fiftieth of a
// lease later, with what returns meanwhile.
func (t *term) collect() {
	for _, h := range t.takeReturned() {
		if h.in != t {
			continue
		}
		if !h.told && !t.leaving() && h.ctx.Err() == nil && !t.idle {
			t.idle = true
			t.log.Warn("the work of a partition has returned before it was told to: this member keeps it without work until it moves: return only when ctx has ended", "partition", h.name, "token", h.token)
		}
		if h.told {
			t.giving.sooner(t.config.Clock, t.config.Lease/50)
		}
	}
	if t.giving.on && !t.works(true) {
		t.giving.sooner(t.config.Clock, 0)
	}
}

// works reports whether work has not returned: any, or only such as was told to.
func (t *term) works(told bool) bool {
	for _, h := range t.have {
		if h.working && (h.told || !told) {
			return true
		}
	}
	return false
}

// awaitAnnouncement waits for an announcement to end, as it does when the term has been told to.
func (t *term) awaitAnnouncement() {
	if t.announcing != nil {
		<-t.announcing
	}
}

// end ends the term, and leaves the member's lock to expire.
func (t *term) end(reason error) {
	t.lease.End(reason)
	t.tellAll(reason)
	t.awaitAnnouncement()
	t.reports.Over(telemetry.ReasonOf(reason, telemetry.Stopped))
	t.lost(t.hold, reason)
}

// release gives the member's lock back, and with it everything that the member has.
func (t *term) release(ctx context.Context) error {
	t.tellAll(t.why)
	t.awaitAnnouncement()
	t.reports.Over(whyOf(t.why))
	t.lost(t.hold, t.why)
	err := t.lease.Release(context.WithoutCancel(ctx), t.why)
	if errors.Is(err, spindle.ErrSuperseded) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		t.log.Warn("the member's lock could not be released", "err", err)
		return nil
	}
	return err
}

// whyOf is the reason of a term that was given up.
func whyOf(err error) telemetry.Reason {
	if errors.Is(err, errUseless) {
		return telemetry.SteppedDown
	}
	return telemetry.Stopped
}
