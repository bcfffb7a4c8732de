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

// A Service is activated and deactivated on this machine. When ctx ends, its methods return an error. Activate and Check
// have then ended everything that they had started; a deactivation may continue.
type Service interface {
	// Activate makes the service active, under a term. When the term's time is up, the service must be deactivated even if
	// this process is stopped or killed.
	Activate(ctx context.Context, t *elect.Term) error
	// Extended says that the term was extended. It may be called at any time.
	Extended()
	// Deactivate fails if the service may still be active. It succeeds if it was inactive before.
	Deactivate(ctx context.Context) error
	// Check returns an error if the service is unhealthy. A service without a health check is always healthy.
	Check(ctx context.Context, role Role) error
}

// A Role is a machine's part.
type Role string

// The roles.
const (
	Active  Role = "active"
	Standby Role = "standby"
)

// Guard keeps a service active on the machine that holds a lock. Renew, Confirm and the lease must be the same on all
// machines.
type Guard struct {
	Candidate  elect.Candidate // whose lease is Renew times the failures that are allowed
	Service    Service
	Renew      time.Duration // between two heartbeats
	Confirm    int           // how many heartbeats to wait after a takeover from a dead holder
	Unhealthy  int           // how many checks in a row must fail to give the lock up
	Activation time.Duration // how long an activation may take
	Handover   bool          // a stop is announced, and requests are accepted

	Say  func(format string, args ...any) // what happens
	Warn func(format string, args ...any) // what went wrong
	Seen func(elect.Step)                 // what came of looking at the lock

	Observer Observer        // or nil
	Asks     <-chan struct{} // the loop receives from it, to show that it runs; or nil
}

// runner is one run of a guard: the machine, and what runs beside it.
type runner struct {
	*Guard
	m      machine
	events *loop.Inbox[message]

	term     *elect.Keeper      // or nil
	role     atomic.Value       // whose health check is run before heartbeats; "": none
	command  context.CancelFunc // ends the command that was run last
	finished chan struct{}      // closed when that has ended
	number   int                // of the command
	retry    bool               // the command was a deactivation that failed
	last     State              // that the observer knows
	withdraw context.CancelFunc // ends competing
	asked    table.Request      // to hand over the present term
	all      sync.WaitGroup
}

// message is an event about a term or a command. It is too late if there is a newer term or command by now.
type message struct {
	event
	term    *elect.Term
	command int
	asked   table.Request
	err     error
}

func (g *Guard) lease() time.Duration { return g.Candidate.LeaseRecord.Lease }

// confirmation returns how long guard holds the lock before it activates the service, after a takeover from a dead holder.
// The dead holder's machine has nearly as long for its deactivation.
func (g *Guard) confirmation() time.Duration { return time.Duration(g.Confirm) * g.Renew }

// deactivation returns how long this machine waits for a deactivation. The command has less: see Deactivation.
func (g *Guard) deactivation() time.Duration { return g.confirmation() - g.confirmation()/20 }

// Deactivation returns how long the command of a deactivation may take, in guard and in its watchdog. The rest, a tenth, is
// for starting and killing it.
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

// handle passes an event on to the machine, unless it came too late.
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
	// No health check while the service changes: it is in neither role, and a deactivation needs the lock.
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

// learn takes in what happened to the term.
func (g *runner) learn(m message) {
	switch m.event {
	case unhealthy:
		g.Warn("the health check failed: %v", m.err)
	case requested:
		g.Say("asked to hand the lock over")
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
		g.Say("its last holder may still be active: waiting %v", g.confirmation())
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

// begin keeps a term with heartbeats, and checks the service before them.
func (g *runner) begin(t *elect.Term) {
	c := &checkup{runner: g, term: t, checked: g.Candidate.Clock.Now()}
	g.term, g.asked = &elect.Keeper{Term: t, Interval: g.Renew, Notify: func(e elect.TermEvent) { g.notify(t, e) }, Before: c.before}, ""
	g.term.Start()
}

// notify takes in what happens to a term.
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

// leave stops the heartbeats. Messages about the term don't matter any more.
func (g *runner) leave() {
	_ = g.term.Stop() // a release says the same
	g.term = nil
	g.Observer.Over()
}

// checkup checks the service before heartbeats of a term.
type checkup struct {
	*runner
	term    *elect.Term
	checked elect.Instant
	sick    sickness
}

func (c *checkup) before(ctx context.Context) {
	role, _ := c.role.Load().(Role)
	if role == "" || c.Candidate.Clock.Now().Since(c.checked) < c.Renew/2 { // a heartbeat that is tried again needs no new check
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

// sickness counts how many checks in one role have failed in a row.
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
		return fmt.Errorf("killed after %v, which is all that the lease allows: %w", limit.Round(time.Millisecond), err)
	}
	return err
}

// run runs a command, after the last one has ended.
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
				m.err = fmt.Errorf("not done after %v: %w", limit, m.err)
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
			if now := g.Candidate.Clock.Now(); !well || now.Since(checked) >= g.Renew/2 { // looks may come more often
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
		g.Warn("not competing: the health check failed: %v", err)
	} else {
		g.Say("competing again: the health check succeeds")
	}
}

func (g *runner) start(f func()) {
	g.all.Add(1)
	go func() { defer g.all.Done(); f() }()
}
