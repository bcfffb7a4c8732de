package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
}

// A Role is the role of a machine.
type Role string

// The roles.
const (
	Active  Role = "active"
	Standby Role = "standby"
)

// Guard keeps a service active on the machine that holds a lock. All machines must use the same Renew, Confirm and
// lease.
type Guard struct {
	Candidate  elect.Candidate // its lease is Renew times the value of --failures
	Service    Service
	Renew      time.Duration // the time between two heartbeats
	Confirm    int           // the confirmation, as a multiple of Renew
	Unhealthy  int           // how many checks in a row must fail before the lock is given up
	Activation time.Duration // how long an activation may take
	Handover   bool          // announce a stop, and accept requests

	Say  func(format string, args ...any) // logs progress
	Warn func(format string, args ...any) // logs a problem
	Seen func(elect.Step)                 // receives the result of each poll of the lock

	Observer Observer        // or nil
	Asks     <-chan struct{} // the loop receives from it to show that it is running; or nil
}

// runner is one run of a guard. It has the state machine, and everything that runs in parallel with it.
type guardRunner struct {
	*Guard
	m      guardMachine
	events *loop.Inbox[event]

	term     *elect.Keeper      // or nil
	role     atomic.Value       // the role to check before heartbeats, or "" for no check
	command  context.CancelFunc // ends the last command
	finished chan struct{}      // closed when the last command has ended
	number   int                // the number of the last command
	retry    bool               // the last command was a failed deactivation
	last     State              // the last state that the observer was told
	withdraw context.CancelFunc // ends the competition for the lock
	asked    table.Request      // the request to hand over the current term, or ""
	all      sync.WaitGroup
}

func (g *Guard) lease() time.Duration { return g.Candidate.LeaseRecord.Lease }

// confirmation returns how long guard holds the lock before it activates the service. This wait is necessary if the
// last holder did not release the lock, because its machine may still be deactivating the service.
func (g *Guard) confirmation() time.Duration { return time.Duration(g.Confirm) * g.Renew }

// deactivation returns how long guard waits for a deactivation to finish. It is slightly longer than the limit for the
// --deactivate command, which Deactivation returns.
func (g *Guard) deactivation() time.Duration { return g.confirmation() - g.confirmation()/20 }

// Deactivation returns the time limit for the --deactivate command, both in guard and in its watchdog. The limit is
// nine tenths of the confirmation. The rest is for starting and killing the command.
func Deactivation(renew time.Duration, confirm int) time.Duration {
	confirmation := time.Duration(confirm) * renew
	return confirmation - confirmation/10
}

// Pause returns the time between two attempts to deactivate.
func Pause(renew time.Duration) time.Duration { return renew / 2 }

// Run guards the service until ctx ends. It returns once the service is inactive and the lock is given up.
func (g *Guard) Run(ctx context.Context) {
	if g.Observer == nil {
		g.Observer = nobody{}
	}
	r := &guardRunner{Guard: g, m: guardMachine{handover: g.Handover}, events: loop.NewInbox[event]()}
	r.loop(ctx)
}

func (g *guardRunner) loop(ctx context.Context) {
	defer g.all.Wait()
	stop := ctx.Done()
	for m := (event{what: begun}); ; m = g.await(stop) {
		if m.what == ending {
			stop = nil
		}
		for _, a := range g.handle(m) {
			if a == end {
				return
			}
			g.do(a)
		}
	}
}

// await waits for the next event.
func (g *guardRunner) await(stop <-chan struct{}) event {
	for {
		select {
		case <-g.events.Ready():
			if m, ok := g.events.Next(); ok {
				return m
			}
		case <-stop:
			return event{what: ending}
		case <-g.Asks:
		}
	}
}

// handle passes an event on to the machine, unless it concerns an earlier term or command.
func (g *guardRunner) handle(m event) []deed {
	switch m.what {
	case electedDead, elected:
		g.begin(m.term)
		g.Say("holding the lock, token %d", m.term.Token())
		g.Observer.Elected(m.term)
	case confirmed, unfit, lost, requested, announced:
		if g.term == nil || m.term != g.term.Term {
			return nil
		}
		g.learn(m)
	case activated, notActivated, deactivated, notDeactivated:
		if m.command != g.number {
			return nil
		}
		g.report(m)
	}
	g.retry = m.what == notDeactivated
	actions := g.m.on(m.what)
	// While the service is being activated or deactivated, its health is not checked. In particular, a failed check
	// must not make guard give up the lock during a deactivation.
	switch g.m.service {
	case active:
		g.role.Store(Active)
	case inactive:
		g.role.Store(Standby)
	default:
		g.role.Store(Role(""))
	}
	g.tellState()
	return actions
}

// learn updates the runner for an event of the term.
func (g *guardRunner) learn(m event) {
	switch m.what {
	case unfit:
		g.Warn("the health check failed: %v", m.err)
	case requested:
		g.Say("asked to hand over the lock")
		g.asked = m.by
	case lost:
		g.Warn("the lock is lost: %v", m.err)
		g.Observer.Lost(m.err)
		g.leave()
	}
}

func (g *guardRunner) report(m event) {
	switch m.what {
	case activated:
		g.Say("the service is active")
	case notActivated:
		g.Warn("the service could not be activated: %v", m.err)
	case deactivated:
		g.Say("the service is inactive")
	case notDeactivated:
		g.Warn("THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", m.err)
	}
}

func (g *guardRunner) do(a deed) {
	switch a {
	case activate:
		t := g.term.Term
		if g.Handover {
			g.term.WatchRequests()
		}
		g.run(g.Activation, 0, activated, notActivated, func(ctx context.Context) error { return g.Service.Activate(ctx, t) })
	case deactivate:
		pause := time.Duration(0)
		if g.retry {
			pause = Pause(g.Renew)
		}
		g.run(g.deactivation(), pause, deactivated, notDeactivated, g.Service.Deactivate)
	case announce:
		g.term.Announce()
	case compete:
		g.compete(0)
	case competeLater:
		g.compete(g.lease())
	case withdraw:
		g.withdraw()
	case confirm:
		g.Say("waiting %v because the service may still be active on the last holder's machine", g.confirmation())
		t := g.term.Term
		timer := g.Candidate.Clock.AfterFunc(g.confirmation(), func() { g.events.Put(event{what: confirmed, term: t}) })
		context.AfterFunc(t.Context(), func() { timer.Stop() })
	case release:
		t := g.term.Term
		g.leave()
		err := t.Release(context.Background(), errGivenUp)
		if err != nil {
			g.Warn("the lock could not be released: %v", err)
		} else {
			g.Say("released the lock")
		}
		if g.asked != "" {
			g.Candidate.Yield(err == nil, g.asked)
		}
	case abandon:
		t := g.term.Term
		g.leave()
		t.End(errGivenUp)
		g.Say("left the lock to expire")
	}
}

var errGivenUp = errors.New("given up")

// begin keeps a term by heartbeats, and checks the service before each of them.
func (g *guardRunner) begin(t *elect.Term) {
	c := &checkup{guardRunner: g, term: t, checked: g.Candidate.Clock.Now()}
	g.term, g.asked = &elect.Keeper{Term: t, Interval: g.Renew, Notify: func(e elect.TermEvent) { g.notify(t, e) }, Before: c.before}, ""
	g.term.Start()
}

// notify receives the term's events.
func (g *guardRunner) notify(t *elect.Term, e elect.TermEvent) {
	switch e.What {
	case elect.Beat:
		g.Service.Extended()
	case elect.Lost:
		g.events.Put(event{what: lost, term: t, err: e.Err})
	case elect.Requested:
		g.events.Put(event{what: requested, term: t, by: e.By})
	case elect.Announced:
		g.events.Put(event{what: announced, term: t})
	}
}

// leave stops the heartbeats. Later messages about the term are ignored.
func (g *guardRunner) leave() {
	_ = g.term.Stop() // a release returns the same error
	g.term = nil
	g.Observer.Over()
}

// checkup checks the service before a term's heartbeats.
type checkup struct {
	*guardRunner
	term    *elect.Term
	checked elect.Instant
	sick    sickness
}

func (c *checkup) before(ctx context.Context) {
	role, _ := c.role.Load().(Role)
	if role == "" || c.Candidate.Clock.Now().Since(c.checked) < c.Renew/2 { // a retried heartbeat needs no new check
		return
	}
	err := c.check(ctx, role, max(c.term.Left()/2, 0)) // the other half is for the heartbeat
	c.checked = c.Candidate.Clock.Now()
	if ctx.Err() != nil {
		return
	}
	if n := c.sick.count(role, err); n >= c.Unhealthy {
		c.events.Put(event{what: unfit, term: c.term, err: err})
	} else if n > 0 {
		c.Warn("the health check failed (failure %d of %d in a row): %v", n, c.Unhealthy, err)
	}
}

// sickness counts the consecutive failed checks in one role.
type sickness struct {
	role   Role
	failed int
}

func (s *sickness) count(role Role, err error) int {
	if err == nil || role != s.role {
		*s = sickness{role: role}
	}
	if err != nil {
		s.failed++
	}
	return s.failed
}

func (g *Guard) check(ctx context.Context, role Role, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := g.Service.Check(limited, role)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("killed after %v, because the lease does not allow more time: %w", limit.Round(time.Millisecond), err)
	}
	return err
}

// run starts a command. If the last command is still running, run ends it first.
func (g *guardRunner) run(limit, pause time.Duration, done, failed happening, do func(context.Context) error) {
	if g.command != nil {
		g.command()
		<-g.finished
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.command, g.finished = cancel, make(chan struct{})
	g.number++
	m, finished := event{what: done, command: g.number}, g.finished
	g.start(func() {
		elect.Sleep(ctx, g.Candidate.Clock, pause)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if m.err = do(limited); m.err != nil {
			m.what = failed
			if limited.Err() != nil && ctx.Err() == nil {
				m.err = fmt.Errorf("not finished after %v: %w", limit, m.err)
			}
		}
		close(finished)
		g.events.Put(m)
	})
}

// compete competes for the lock while the service is healthy, until the lock is held or g.withdraw is called.
func (g *guardRunner) compete(pause time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	g.withdraw = cancel
	g.start(func() {
		well := true
		var checked elect.Instant
		for ctx.Err() == nil {
			elect.Sleep(ctx, g.Candidate.Clock, pause)
			if ctx.Err() != nil {
				break
			}
			pause = g.Renew
			if now := g.Candidate.Clock.Now(); !well || now.Since(checked) >= g.Renew/2 { // polls may be more frequent than checks
				checked = now
				err := g.check(ctx, Standby, g.lease())
				if ctx.Err() != nil {
					break
				}
				if (err == nil) != well {
					g.tellHealth(err)
					well = err == nil
				}
			}
			if !well {
				continue
			}
			step := g.Candidate.Try(ctx, elect.All, min(g.Renew, g.lease()/3))
			switch {
			case step.Term != nil && step.Seen[0].NotReleased:
				g.events.Put(event{what: electedDead, term: step.Term})
				return
			case step.Term != nil:
				g.events.Put(event{what: elected, term: step.Term})
				return
			case ctx.Err() == nil:
				g.Seen(step)
			}
			pause = step.Pause
		}
		g.events.Put(event{what: withdrawn})
	})
}

func (g *Guard) tellHealth(err error) {
	if err != nil {
		g.Warn("not competing because the health check failed: %v", err)
	} else {
		g.Say("competing again because the health check succeeded")
	}
}

func (g *guardRunner) start(f func()) {
	g.all.Add(1)
	go func() { defer g.all.Done(); f() }()
}
