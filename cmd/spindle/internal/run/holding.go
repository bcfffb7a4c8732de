package run

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
)

// acquire competes for a lock until it is held, a try ends the command, or ctx ends. The result is one event. The error
// trouble is why the last poll failed.
func acquire(ctx context.Context, clock elect.Clock, pause time.Duration, trouble error, try func(context.Context) (elect.Step, *exit.Error)) event {
	for {
		elect.Sleep(ctx, clock, pause)
		if ctx.Err() != nil {
			return event{what: withdrawn, err: trouble}
		}
		step, end := try(ctx)
		switch {
		case step.Term != nil && step.Seen[0].NotReleased:
			return event{what: electedDead, term: step.Term}
		case step.Term != nil:
			return event{what: elected, term: step.Term}
		case end != nil:
			return event{what: unable, end: *end}
		case ctx.Err() == nil: // otherwise the poll was interrupted
			trouble = step.Err
		}
		pause = step.Pause
	}
}

// holding is a term, and the work that runs during it. Its events end with it, so no event of an earlier term is handled.
type holding struct {
	*elect.Keeper
	kept   bool   // by heartbeats; false if the lock came too late
	beat   func() // called after each heartbeat, or nil
	events *loop.Inbox[event]
	ctx    context.Context // for other work during the term
	quit   context.CancelFunc
	all    sync.WaitGroup // for that work
}

func hold(t *elect.Term, interval time.Duration) *holding {
	h := &holding{events: loop.NewInbox[event]()}
	h.Keeper = &elect.Keeper{Term: t, Interval: interval, Notify: h.notify}
	h.ctx, h.quit = context.WithCancel(t.Context())
	return h
}

// termHappenings maps events of a term to events of the machine.
var termHappenings = map[elect.TermEventKind]happening{elect.InJeopardy: jeopardy, elect.Safe: safe, elect.Lost: lost, elect.Requested: requested, elect.Announced: announced}

// notify receives the term's events.
func (h *holding) notify(e elect.TermEvent) {
	if what, known := termHappenings[e.What]; known {
		h.events.Put(event{what: what, err: e.Err, by: e.By})
	} else if e.What == elect.Beat && h.beat != nil {
		h.beat()
	}
}

// happens returns a channel that has a value when an event is waiting. It also works on nil.
func (h *holding) happens() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.events.Ready()
}

// cause returns the reason why the term ended.
func (h *holding) cause() error {
	return cmp.Or(context.Cause(h.Over()), elect.ErrExpired) // ErrExpired if the machine was suspended and no timer has fired yet
}

// leave ends the heartbeats and the other work that runs during the term.
func (h *holding) leave() {
	h.quit()
	h.all.Wait()
	if h.kept {
		_ = h.Stop() // Held returns the same information
	}
}
