package guard

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

// A Service can be activated and deactivated on this machine. When ctx ends, its methods return an error. By the time
// Activate and Check return, they have ended everything that they started. A deactivation may continue after Deactivate
// returns.
type Service interface {
	// Activate makes the service active under a term. At the term's deadline, the service must be deactivated even if
	// this process is stopped or killed.
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
	Seen func(elect.Step)                 // receives the result of each look at the lock

	Observer Observer        // or nil
	Asks     <-chan struct{} // the loop receives from it to show that it is running; or nil
}

// runner is one run of a guard. It has the state machine, and everything that runs in parallel with it.
type runner struct {
	*Guard
	m      machine
	events *loop.Inbox[message]

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

// message is an event about a term or a command. The runner ignores it if there is a newer term or command.
type message struct {
	event
	term    *elect.Term
	command int
	asked   table.Request
	err     error
}

func (g *Guard) lease() time.Duration { return g.Candidate.LeaseRecord.Lease }

// confirmation returns how long guard holds the lock before it activates the service, if the last holder did not
// release the lock. The last holder's machine has nearly as much time to deactivate the service.
func (g *Guard) confirmation() time.Duration { return time.Duration(g.Confirm) * g.Renew }

// deactivation returns how long this machine waits for a deactivation. The command itself gets less time; see
// Deactivation.
func (g *Guard) deactivation() time.Duration { return g.confirmation() - g.confirmation()/20 }

// Deactivation returns the time limit for the --deactivate command, both in guard and in its watchdog. The remaining
// tenth of the confirmation is reserved for starting and killing the command.
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
	r := &runner{Guard: g, m: machine{handover: g.Handover}, events: loop.NewInbox[message]()}
	r.loop(ctx)
}

func (g *runner) loop(ctx context.Context) {
	defer g.all.Wait()
	stop := ctx.Done()
	for m := (message{event: started}); ; m = g.await(stop) {
		if m.event == stopAsked {
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
func (g *runner) await(stop <-chan struct{}) message {
	for {
		select {
		case <-g.events.Ready():
			if m, ok := g.events.Next(); ok {
				return m
			}
		case <-stop:
			return message{event: stopAsked}
		case <-g.Asks:
		}
	}
}

// handle passes an event on to the machine, unless it concerns an earlier term or command.
func (g *runner) handle(m message) []action {
	switch m.event {
	case electedDead, electedFree:
		g.begin(m.term)
		g.Say("holding the lock, token %d", m.term.Token())
		g.Observer.Elected(m.term)
	case confirmed, unhealthy, lockLost, requested, announced:
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
	g.retry = m.event == notDeactivated
	actions := g.m.on(m.event)
	// While the service changes, it has no role to check. A failed check must not give up the lock during a
	// deactivation.
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
func (g *runner) learn(m message) {
	switch m.event {
	case unhealthy:
		g.Warn("the health check failed: %v", m.err)
	case requested:
		g.Say("asked to hand over the lock")
		g.asked = m.asked
	case lockLost:
		g.Warn("the lock is lost: %v", m.err)
		g.Observer.Lost(m.err)
		g.leave()
	}
}

func (g *runner) report(m message) {
	switch m.event {
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

func (g *runner) do(a action) {
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
	case wait:
		g.Say("waiting %v because the service may still be active on the last holder's machine", g.confirmation())
		t := g.term.Term
		timer := g.Candidate.Clock.AfterFunc(g.confirmation(), func() { g.events.Put(message{event: confirmed, term: t}) })
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
func (g *runner) begin(t *elect.Term) {
	c := &checkup{runner: g, term: t, checked: g.Candidate.Clock.Now()}
	g.term, g.asked = &elect.Keeper{Term: t, Interval: g.Renew, Notify: func(e elect.TermEvent) { g.notify(t, e) }, Before: c.before}, ""
	g.term.Start()
}

// notify receives the term's events.
func (g *runner) notify(t *elect.Term, e elect.TermEvent) {
	switch e.What {
	case elect.Beat:
		g.Service.Extended()
	case elect.Lost:
		g.events.Put(message{event: lockLost, term: t, err: e.Err})
	case elect.Requested:
		g.events.Put(message{event: requested, term: t, asked: e.By})
	case elect.Announced:
		g.events.Put(message{event: announced, term: t})
	}
}

// leave stops the heartbeats. Later messages about the term are ignored.
func (g *runner) leave() {
	_ = g.term.Stop() // a release returns the same error
	g.term = nil
	g.Observer.Over()
}

// checkup checks the service before a term's heartbeats.
type checkup struct {
	*runner
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
		c.events.Put(message{event: unhealthy, term: c.term, err: err})
	} else if n > 0 {
		c.Warn("the health check failed, %d of %d times: %v", n, c.Unhealthy, err)
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
		return fmt.Errorf("killed after %v, the longest time that the lease allows: %w", limit.Round(time.Millisecond), err)
	}
	return err
}

// run starts a command. If the last command is still running, run ends it first.
func (g *runner) run(limit, pause time.Duration, done, failed event, do func(context.Context) error) {
	if g.command != nil {
		g.command()
		<-g.finished
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.command, g.finished = cancel, make(chan struct{})
	g.number++
	m, finished := message{event: done, command: g.number}, g.finished
	g.start(func() {
		elect.Sleep(ctx, g.Candidate.Clock, pause)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if m.err = do(limited); m.err != nil {
			m.event = failed
			if limited.Err() != nil && ctx.Err() == nil {
				m.err = fmt.Errorf("not finished after %v: %w", limit, m.err)
			}
		}
		close(finished)
		g.events.Put(m)
	})
}

// compete competes for the lock while the service is healthy, until the lock is held or g.withdraw is called.
func (g *runner) compete(pause time.Duration) {
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
			if now := g.Candidate.Clock.Now(); !well || now.Since(checked) >= g.Renew/2 { // looks may be more frequent than checks
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
				g.events.Put(message{event: electedDead, term: step.Term})
				return
			case step.Term != nil:
				g.events.Put(message{event: electedFree, term: step.Term})
				return
			case ctx.Err() == nil:
				g.Seen(step)
			}
			pause = step.Pause
		}
		g.events.Put(message{event: withdrawn})
	})
}

func (g *Guard) tellHealth(err error) {
	if err != nil {
		g.Warn("not competing because the health check failed: %v", err)
	} else {
		g.Say("competing again because the health check succeeds")
	}
}

func (g *runner) start(f func()) {
	g.all.Add(1)
	go func() { defer g.all.Done(); f() }()
}
