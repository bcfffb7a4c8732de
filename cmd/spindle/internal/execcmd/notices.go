package execcmd

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Notices tell observers what happens. Run calls them one at a time. They must return at once, and may be nil. Job has
// methods for the rest.
type Notices struct {
	Ending func(os.Signal) // exec got a signal to end; called for each
	Lost   func(why error) // the lock is lost, or so nearly that the program must end; once in a term
	Stuck  func(why error) // the program's group was killed, and is not gone at the lock's deadline; once for a program
}

// noticed says which Notices were called.
type noticed struct {
	lost  *holding
	stuck *process
}

var errLate = errors.New("no heartbeat was acknowledged in time")

func (r *runner) notice(e event) {
	switch e.what {
	case ending:
		if r.Notices.Ending != nil {
			r.Notices.Ending(e.signal)
		}
	case jeopardy, safe:
		r.noticeHeartbeat(e)
	case late, overdue:
		r.noticeLoss(r.term, errLate)
	case lost, unfit:
		r.noticeLoss(r.term, e.err)
	}
	if p := r.program; p != nil && p != r.noticed.stuck && p.outlives(time.Now()) {
		r.noticed.stuck = p
		if r.Notices.Stuck != nil {
			r.Notices.Stuck(fmt.Errorf("%s was killed, and has not ended at the deadline of %s", r.Program, r.name()))
		}
	}
}

// noticeHeartbeat is for a term that goes on. What was taken in together with the event may have ended it.
func (r *runner) noticeHeartbeat(e event) {
	switch {
	case r.term == nil || r.m.turn.lost != nil:
	case e.what == jeopardy:
		r.Job.Jeopardy(r.term.Term, e.err)
	case e.what == safe:
		r.Job.Safe()
	}
}

// noticeLoss is for a term that was kept; any other was never known.
func (r *runner) noticeLoss(h *holding, why error) {
	if h == nil || !h.kept || h == r.noticed.lost {
		return
	}
	r.noticed.lost = h
	if r.Notices.Lost != nil {
		r.Notices.Lost(why)
	}
}

// outlives reports whether the program, which had to be killed before, is still there at the lock's deadline.
func (d *deadlines) outlives(now time.Time) bool { return !d.kill.IsZero() && !now.Before(d.until) }

// UntilEnding returns a channel that is closed at the next signal that ends exec, for what is left to do after Run.
func UntilEnding(signals <-chan os.Signal) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for s := range signals {
			if ends(s) {
				close(over)
				return
			}
		}
	}()
	return over
}
