package run

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Service can be activated and deactivated on this machine. If ctx ends, its methods return an error. Activate and
// Check then kill the commands that they run, but a deactivation may continue after Deactivate has returned.
type Service interface {
	// Activate makes the service active for a term. It also ensures that the service is deactivated at the term's
	// deadline, even if this process is stopped or killed.
	Activate(ctx context.Context, t *elect.Term) error
	// Extended is called when the term was extended. This can happen at any time.
	Extended()
	// Deactivate returns an error if the service may still be active. It succeeds if the service is already inactive.
	Deactivate(ctx context.Context) error
	// Check returns an error if the service is unhealthy. A service without a health check is always healthy.
	Check(ctx context.Context, role Role) error

	// The runner calls these one at a time, and they must return immediately. Seen receives the result of each poll.
	// Begin is called when the lock has been acquired. Lost is called once in a term if the lock is lost, and Over when
	// the term is over. Changed is called when the state has changed.
	Seen(step elect.Step)
	Begin(t *elect.Term)
	Lost(why error)
	Over()
	Changed(s State)
}

// A Role is the role of a machine.
type Role string

// The roles.
const (
	Active  Role = "active"
	Standby Role = "standby"
)

// A State describes for users what a machine is doing.
type State string

// The states.
const (
	Deactivating State = "deactivating the service"
	Stuck        State = "THE SERVICE COULD NOT BE DEACTIVATED, trying again"
	Competing    State = "on standby"
	Confirming   State = "holding the lock, and waiting while the last holder deactivates the service"
	Activating   State = "activating the service"
	Working      State = "the service is active"
)

// Guard keeps a service active on the machine that holds a lock. All machines must use the same Renew, Confirm and
// lease, which is Renew times the value of --failures.
type Guard struct {
	command
	Service
	Renew      time.Duration // the time between two heartbeats
	Unhealthy  int           // how many checks in a row must fail before the lock is given up
	Activation time.Duration // how long an activation may take

	// Confirmation is how long guard holds the lock before it activates the service. This wait is necessary if the last
	// holder did not release the lock, because its machine may still be deactivating the service.
	Confirmation time.Duration
}

// services is one run of a guard.
type services struct {
	*Guard
	run *runner

	role     atomic.Value       // the role to check before heartbeats, or "" for no check
	cancel   context.CancelFunc // ends the last command of the service
	finished chan struct{}      // closed when the last command has ended
	number   int                // the number of the last command
	retry    bool               // the last command was a failed deactivation
	last     State              // the state of the last call of Changed
	well     bool               // while guard competes: the service is healthy
	checked  elect.Instant      // while guard competes: when it was checked
}

// Run guards the service until ctx ends. It returns once the service is inactive and the lock is given up.
func (g *Guard) Run(ctx context.Context) {
	s := g.newServices()
	stop := context.AfterFunc(ctx, func() { s.run.events.Put(event{what: ending, signal: terminationSignal}) })
	defer stop()
	s.run.run()
}

func (g *Guard) newServices() *services {
	s := &services{Guard: g, cancel: func() {}, finished: make(chan struct{})}
	close(s.finished)
	s.run = &runner{command: &g.command, edge: s, lock: "the lock", events: loop.NewInbox[event](),
		m: machine{handover: g.Handover, restart: true, service: true}}
	s.run.asks = g.Asks
	return s
}

// Done is never called, because guard does no work once.
func (s *services) Done() table.Due { return table.Due{} }

func (s *services) competes(how deed) (pause time.Duration, until time.Time, trouble error) {
	s.well, s.checked = true, elect.Instant{}
	if how == competeLater {
		pause = s.lease()
	}
	return pause, until, trouble
}

// Try competes for the lock while the service is healthy.
func (s *services) Try(ctx context.Context) (elect.Step, *exit.Error) {
	if now := s.Candidate.Clock.Now(); !s.well || now.Since(s.checked) >= s.Renew/2 { // polls may be more frequent than checks
		s.checked = now
		err := s.healthy(ctx, Standby, s.lease())
		if well := err == nil; ctx.Err() == nil && well != s.well {
			s.well = well
			if well {
				s.Say("competing again because the health check succeeded")
			} else {
				s.Warn("not competing because the health check failed: %v", err)
			}
		}
	}
	if !s.well || ctx.Err() != nil {
		return elect.Step{Pause: s.Renew}, nil
	}
	step := s.Candidate.Try(ctx, elect.All, min(s.Renew, s.lease()/3))
	if step.Term == nil && ctx.Err() == nil {
		s.Seen(step)
	}
	return step, nil
}

// begins lets the service be checked before each heartbeat of a term.
func (s *services) begins(h *holding) {
	s.Say("holding the lock, token %d", h.Token())
	s.Begin(h.Term)
	c := &checkup{services: s, term: h, checked: s.Candidate.Clock.Now()}
	h.Interval, h.beat, h.Before = s.Renew, s.Extended, c.before
}

// check waits for the confirmation.
func (s *services) check(h *holding) {
	s.Say("waiting %v because the service may still be active on the last holder's machine", s.Confirmation)
	timer := s.Candidate.Clock.AfterFunc(s.Confirmation, func() { h.put(event{what: due}) })
	context.AfterFunc(h.ctx, func() { timer.Stop() })
}

func (s *services) start(h *holding) event {
	s.do(s.Activation, 0, activated, unfit, func(ctx context.Context) error { return s.Activate(ctx, h.Term) })
	return event{what: started}
}

// stop deactivates the service.
func (s *services) stop(action) {
	pause := time.Duration(0)
	if s.retry {
		pause = s.Renew / 2
	}
	limit := s.Confirmation * 19 / 20 // slightly more than the --deactivate command may take
	s.do(limit, pause, exited, notExited, s.Deactivate)
}

func (s *services) announces(os.Signal) {}

// hears reports an event, unless it concerns an earlier command.
func (s *services) hears(e event) event {
	if e.command != 0 && e.command != s.number {
		return event{}
	}
	if e.what != nothing {
		s.retry = e.what == notExited
	}
	switch e.what {
	case activated:
		s.Say("the service is active")
	case exited:
		s.Say("the service is inactive")
	case notExited:
		s.Warn("THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", e.err)
	case unfit:
		if e.command != 0 {
			s.Warn("the service could not be activated: %v", e.err)
		} else {
			s.Warn("the health check failed: %v", e.err)
		}
	case requested:
		s.Say("asked to hand over the lock")
	case lost:
		s.Warn("the lock is lost: %v", e.err)
	}
	return e
}

// handled tells the checks and the service in which state the machine is. While the service is being activated or
// deactivated, its health is not checked. In particular, a failed check must not make guard give up the lock during a
// deactivation.
func (s *services) handled() {
	role, state := Role(""), Deactivating
	switch m := &s.run.m; m.phase {
	case waiting:
		if m.signal == nil {
			state = Competing
		}
	case checking:
		role, state = Standby, Confirming
	case starting:
		state = Activating
	case running, announcing:
		if state = Activating; m.turn.active {
			role, state = Active, Working
		}
	case stopping:
		if s.retry {
			state = Stuck
		}
	}
	s.role.Store(role)
	if state != s.last {
		s.last = state
		s.Changed(state)
	}
}

// checkup checks the service before a term's heartbeats.
type checkup struct {
	*services
	term    *holding
	checked elect.Instant
	role    Role
	failed  int // consecutive checks in the role
}

func (c *checkup) before(ctx context.Context) {
	role, _ := c.services.role.Load().(Role)
	if role == "" || c.Candidate.Clock.Now().Since(c.checked) < c.Renew/2 { // a retried heartbeat needs no new check
		return
	}
	err := c.healthy(ctx, role, max(c.term.Left()/2, 0)) // the other half is for the heartbeat
	c.checked = c.Candidate.Clock.Now()
	if ctx.Err() != nil {
		return
	}
	if err == nil || role != c.role {
		c.role, c.failed = role, 0
	}
	if err == nil {
		return
	}
	if c.failed++; c.failed >= c.Unhealthy {
		c.term.put(event{what: unfit, err: err})
	} else {
		c.Warn("the health check failed (failure %d of %d in a row): %v", c.failed, c.Unhealthy, err)
	}
}

// healthy checks the service, within a limit.
func (g *Guard) healthy(ctx context.Context, role Role, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := g.Check(limited, role)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("killed after %v, because the lease does not allow more time: %w", limit.Round(time.Millisecond), err)
	}
	return err
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
		elect.Sleep(ctx, s.Candidate.Clock, pause)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if e.err = command(limited); e.err != nil {
			e.what = failed
			if limited.Err() != nil && ctx.Err() == nil {
				e.err = fmt.Errorf("not finished after %v: %w", limit, e.err)
			}
		}
		close(finished)
		s.run.events.Put(e)
	}()
}
