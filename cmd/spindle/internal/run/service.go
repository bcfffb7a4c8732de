package run

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
)

// A service can be activated and deactivated on this machine. If ctx ends while a command is running, the method
// returns an error. Activate and Check kill the command first, but a deactivation may continue after Deactivate has
// returned. Outside tests, only the type guarding implements service.
type service interface {
	// Activate makes the service active for a term. It first starts a watchdog, which deactivates the service at the
	// term's deadline, or when this process dies.
	Activate(ctx context.Context, t *elect.Term) error
	// Extended is called after a heartbeat has extended the term, even while another method is running.
	Extended()
	// Deactivate makes the service inactive, if it is not inactive already. It returns an error if the service may
	// still be active.
	Deactivate(ctx context.Context) error
	// Check returns an error if the health check fails, or if the watchdog of an active service has begun to deactivate
	// the service or has exited.
	Check(ctx context.Context, r role) error
}

// The states of this machine, as users see them.
const (
	deactivating = "deactivating the service"
	stuck        = "THE SERVICE COULD NOT BE DEACTIVATED, trying again"
	competing    = "on standby"
	confirming   = "holding the lock, and waiting in case the last holder is still deactivating the service"
	activating   = "activating the service"
	working      = "the service is active"
)

// services is the edge for guard, which keeps a service active while the lock is held.
type services struct {
	*guarding
	*runner
	service service

	cancel   context.CancelFunc // ends the last command of the service
	finished chan struct{}      // closed when the last command has ended
	number   int                // the number of the last command
	retry    bool               // the last command was a failed deactivation
	shown    string             // the last state that was reported
	well     bool               // while guard competes: the service is healthy
	checked  elect.Instant      // while guard competes: when it was checked
}

func (g *guarding) newServices(of service) *services {
	s := &services{guarding: g, service: of, cancel: func() {}, finished: make(chan struct{})}
	close(s.finished)
	s.runner = &runner{of: &g.reports, edge: s, lock: "the lock", say: g.sayOf, warn: g.complainOf, events: loop.NewInbox[event](),
		m: machine{handover: g.handover, restart: true, service: true}}
	return s
}

// run guards the service until ctx ends. It returns once the service is inactive and the lock is given up.
func (s *services) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { s.events.Put(event{what: ending, signal: terminationSignal}) })
	defer stop()
	s.loop()
}

func (s *services) over() {
	s.setToken(0)
	s.reports.over()
}

func (s *services) competes(how deed) (pause time.Duration, until time.Time, trouble error) {
	s.well, s.checked = true, elect.Instant{}
	if how == competeLater {
		pause = s.reports.lease()
	}
	return pause, until, trouble
}

// note notes the result of a health check on standby. The log has only the changes, and the status has each reason.
func (s *services) note(err error) {
	well := err == nil
	switch {
	case well && !s.well:
		s.say("competing again because the health check succeeded")
	case !well && s.well:
		s.warn("not competing because the health check failed: %v", err)
	}
	s.well = well
	if !well {
		s.does(false, "on standby: not competing because the health check failed: %v", err)
	}
}

// try polls the lock if the service is healthy, and claims it if possible.
func (s *services) try(ctx context.Context) (elect.Step, *terminal.Exit) {
	if now := s.candidate.Clock.Now(); !s.well || now.Since(s.checked) >= s.renew/2 { // polls may be more frequent than checks
		s.checked = now
		if err := within(ctx, standby, s.reports.lease(), s.service.Check); ctx.Err() == nil {
			s.note(err)
		}
	}
	if !s.well || ctx.Err() != nil {
		return elect.Step{Pause: s.renew}, nil
	}
	step := s.candidate.Try(ctx, elect.All, min(s.renew, s.reports.lease()/3))
	if step.Term == nil && ctx.Err() == nil {
		s.seen(step)
	}
	return step, nil
}

// begins reports a term, and has the service checked before each of the term's heartbeats.
func (s *services) begins(h *holding) {
	s.setToken(h.Token())
	s.say("holding the lock, token %d", h.Token())
	s.acquired(h.Term)
	h.Interval, h.beat = s.renew, s.service.Extended
	s.checks.before(s.runner, h, s.service.Check)
}

// check starts the timer for the confirmation.
func (s *services) check(h *holding) {
	s.say("waiting %v because the service may still be active on the last holder's machine", s.confirmation())
	timer := s.candidate.Clock.AfterFunc(s.confirmation(), func() { h.put(event{what: due}) })
	context.AfterFunc(h.ctx, func() { timer.Stop() })
}

func (s *services) start(h *holding) event {
	s.do(s.activation, 0, activated, unfit, func(ctx context.Context) error { return s.service.Activate(ctx, h.Term) })
	return event{what: started}
}

// stop deactivates the service.
func (s *services) stop(action) {
	pause := time.Duration(0)
	if s.retry {
		pause = s.renew / 2
	}
	limit := s.confirmation() * 19 / 20 // slightly more than the --deactivate command may take
	s.do(limit, pause, exited, notExited, s.service.Deactivate)
}

func (s *services) announces(os.Signal) {}

// hears reports an event, unless it concerns an earlier command.
func (s *services) hears(e event) event {
	if e.command != 0 && e.command != s.number {
		return event{}
	}
	if e.command != 0 {
		s.retry = e.what == notExited
	}
	switch e.what {
	case activated:
		s.say("the service is active")
	case exited:
		s.say("the service is inactive")
	case notExited:
		s.warn("THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", e.err)
	case unfit:
		if e.command != 0 {
			s.warn("the service could not be activated: %v", e.err)
		} else {
			s.warn("%v", e.err)
		}
	case requested:
		s.say("asked to hand over the lock")
	case lost:
		s.warn("the lock is lost: %v", e.err)
	}
	return e
}

// handled passes the current state on to the health checks and the reports. While the service is being activated or
// deactivated, its health is not checked. In particular, a failed check must not make guard give up the lock during a
// deactivation.
func (s *services) handled() {
	checked, state := role(""), deactivating
	switch m := &s.m; m.phase {
	case waiting:
		if m.signal == nil {
			state = competing
		}
	case checking:
		checked, state = standby, confirming
	case starting:
		state = activating
	case running, announcing:
		if state = activating; m.turn.active {
			checked, state = active, working
		}
	case stopping:
		if s.retry {
			state = stuck
		}
	}
	s.role.Store(checked)
	if state == s.shown {
		return
	}
	if s.shown = state; state == competing {
		s.unit.Ready()
	}
	s.does(state == working, "%s", state)
}

// do runs a command of the service. If the last command is still running, do ends it first.
func (s *services) do(limit, pause time.Duration, done, failed happening, command func(context.Context) error) {
	s.cancel()
	<-s.finished
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.finished = cancel, make(chan struct{})
	s.number++
	e, finished := event{what: done, command: s.number}, s.finished
	go func() {
		elect.Sleep(ctx, s.candidate.Clock, pause)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if e.err = command(limited); e.err != nil {
			e.what = failed
			if limited.Err() != nil && ctx.Err() == nil {
				e.err = fmt.Errorf("not finished after %v: %w", limit, e.err)
			}
		}
		close(finished)
		s.events.Put(e)
	}()
}
