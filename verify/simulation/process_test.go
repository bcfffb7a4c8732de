package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// process is one process with one Lock, on its own machine, from its start to its crash or end.
type process struct {
	w    *world
	slot int
	name string
	id   uint64 // for dice

	sick bool // it can't confirm

	lock     *spindle.Lock
	member   *member // instead of a lock
	notifier *notify.Notifier
	config   *options.Config
	stop     context.CancelFunc
	died     chan struct{} // closed when it crashes

	// The clock. The loop's readings are awaits; HasLock's readings are not.
	born   time.Time
	rate   float64
	offset int64        // of the wall clock
	step   atomic.Int64 // by how much the wall clock was set since
	stood  atomic.Int64 // how long the monotonic clock stood still
	asking atomic.Int32 // how often HasLock is being asked, or a message received

	// Under w.mu.
	dead, ended       bool
	stoppedAt         time.Time
	paused, suspended bool
	pausedAt, resumes time.Time
	resumed           time.Time // when it last did
	armsLate          bool      // it was stopped with a reading of the clock in its hand
	jumped            time.Time // when its clock last went on at once, or seemed to
	cutOut, cutBack   time.Time // until when its requests and the replies to it are lost
	seen              table.Token
	looking           bool // it has not been told yet that there is no lock row
	held              spindle.Token
	term              *term       // the last that its leader function was told of
	leads             bool        // it has a leader function
	working           int         // calls of the caller's code that have not returned
	beat              time.Time   // when its last heartbeat was sent that was acknowledged
	gave              table.Token // of the term that it gave up last
	gaveAt            time.Time   // when that term ended
	releasedAt        time.Time   // when it was first told that it is released
}

// term is one call of the leader function.
type term struct {
	ctx      context.Context
	token    spindle.Token
	began    time.Time
	returned bool
	early    bool      // it returned without being told to
	left     time.Time // when it returned
	watched  bool
}

// start starts a process in a slot. w.mu is held.
func (w *world) start(slot int) {
	w.started++
	p := &process{w: w, slot: slot, sick: w.plan.sick && slot == 0, born: time.Now(), died: make(chan struct{})}
	p.name = fmt.Sprintf("%c%d", 'a'+slot, w.started)
	p.id = uint64(w.started)
	d := w.dice(p, "start")
	p.rate = pick(&d, 1, w.plan.slowest, w.plan.fastest)
	if d.chance(0.5) {
		p.offset = int64(d.between(-5*time.Hour, 5*time.Hour))
	}
	id := p.name
	if w.plan.reclaim {
		id = fmt.Sprintf("pod-%d", slot)
	}
	run := w.fleet.launch(p, id, &d)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	done := make(chan error, 1)
	w.slots[slot] = p
	w.tracef(p, "starts as %s, lease %v, rate %v", id, p.lease(), p.rate)
	if err := run(ctx, done); err != nil {
		w.violate("run", "%s: %v", p.name, err)
		return
	}
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		err := <-done
		w.mu.Lock()
		defer w.mu.Unlock()
		p.ended = true
		if !p.dead {
			w.tracef(p, "has stopped: %v", err)
			w.soon()
		}
	}()
}

// launch gives the process a Lock.
func (w *world) launch(p *process, id string, d *dice) func(context.Context, ...chan<- error) error {
	opts := w.plan.options(p.slot, id)
	if p.leads = d.chance(0.8); p.leads {
		opts = append(opts, spindle.WithLeader(p.lead), w.plan.stall(3*w.plan.leases[p.slot]))
		if w.plan.keepOnReturn[p.slot] {
			opts = append(opts, spindle.WithKeepOnReturn())
		}
	}
	if w.plan.handovers {
		opts = append(opts, spindle.WithObserver(p.observe))
	}
	p.lock = spindle.New(nil, "locktable", lockName, append(opts, options.Option(p.seam))...)
	return p.lock.Run
}

// seam connects the lock to the simulation's table and the process's clock.
func (p *process) seam(c *options.Config) {
	c.Store, c.Clock, c.Notifier, c.Log = link{p}, p, p.notifier, slog.New(slog.DiscardHandler)
	p.config = c
}

func (p *process) lease() time.Duration { return p.config.Lease }

// clockRead is the await after a reading of the clock. A process that is stopped there continues with an outdated time,
// so a timer that it then sets for the rest of its lease is late.
const clockRead = "clock was read"

// The clock seam.

// Now is an await: the process can be stopped before and after it reads its clocks.
func (p *process) Now() elect.Instant {
	if p.asking.Load() > 0 {
		return p.reading()
	}
	p.await("clock")
	now := p.reading()
	p.await(clockRead)
	return now
}

func (p *process) reading() elect.Instant {
	e := time.Since(p.born)
	return elect.Instant{
		Wall: p.born.UnixNano() + p.offset + p.local(e) + p.step.Load(),
		Mono: p.local(e - time.Duration(p.stood.Load())),
	}
}

func (p *process) local(d time.Duration) int64 { return int64(float64(d) * p.rate) }

// Random implements elect.Clock.
func (p *process) Random(n time.Duration) time.Duration {
	d := p.w.dice(p, "random")
	return d.between(0, n)
}

// Timer returns a real timer with the process's own channel. A Reset is not scaled to the clock's rate; slack allows
// for the difference.
func (p *process) Timer(d time.Duration) *time.Timer {
	c := make(chan time.Time, 1)
	t := p.AfterFunc(d, func() {
		select {
		case c <- time.Now():
		default:
		}
	})
	t.C = c
	return t
}

// AfterFunc implements elect.Clock.
func (p *process) AfterFunc(d time.Duration, f func()) *time.Timer {
	s := &timer{p: p, f: f, id: uint64(d)}
	s.mu.Lock() // fire needs the timer
	defer s.mu.Unlock()
	s.t = time.AfterFunc(time.Duration(float64(d)/p.rate), s.fire)
	return s.t
}

// timer fires slightly late, by an odd number of nanoseconds, and not while its process is stopped. The runtime still
// owns the timer, so a Stop in the meantime is in time.
type timer struct {
	p  *process
	f  func()
	id uint64

	mu    sync.Mutex
	t     *time.Timer
	ready bool // it was late already
}

func (s *timer) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, paused := s.p.outstanding()
	if !paused && s.ready {
		s.ready = false
		s.f()
		return
	}
	d := s.p.w.dice(s.p, "timer", s.id)
	s.ready = true
	s.t.Reset(wait + d.between(1, 100*time.Microsecond))
}

// outstanding returns how long an expired timer waits for the process to run.
func (p *process) outstanding() (time.Duration, bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.dead || !p.paused {
		return 0, false
	}
	wait := time.Until(p.resumes)
	if p.suspended {
		wait += time.Since(p.pausedAt) // its clock did not run on either
	}
	return wait, true
}

// await is a point at which the process can be stopped, by chance or because a stop is pending.
func (p *process) await(where string) {
	p.w.mu.Lock()
	d := p.w.dice(p, where)
	if p.w.faulty() && !p.dead && d.chance(p.w.plan.pause) {
		p.w.pause(p, &d, where)
	}
	p.w.mu.Unlock()
	p.gate(where)
}

// gate blocks the caller while the process is stopped.
func (p *process) gate(where string) {
	for {
		wait, paused := p.stopped()
		if !paused {
			return
		}
		d := p.w.dice(p, where)
		time.Sleep(wait + d.between(1, 100*time.Microsecond))
	}
}

func (p *process) stopped() (time.Duration, bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return time.Until(p.resumes), p.paused && !p.dead
}

// nap pauses the process's own work. It returns true unless the process crashed.
func (p *process) nap(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.died:
	case <-done:
		d := p.w.dice(p, "work")
		time.Sleep(d.between(1, 100*time.Microsecond)) // the process may be stopped at the very instant
	case <-t.C:
	}
	p.gate("work")
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return !p.dead
}

// lead is the leader function. It makes fenced writes from time to time, during its term and after it, and returns
// early, in time or late.
func (p *process) lead(ctx context.Context, under spindle.Term) {
	token := under.Token()
	p.w.running.Add(1)
	defer p.w.running.Done()
	t := p.begin(ctx, token)
	defer p.end(t)
	d := seeded(p.w.seed, p.id, uint64(token))
	p.toil(ctx, &d, 3*p.lease(), func() { _ = under.Progress() }, func() { p.fencedWrite(lockName, token, p.lock.Fence(token)) })
}

// toil is the guarded work. It may hang, and does not look at its ctx meanwhile.
func (p *process) toil(ctx context.Context, d *dice, seldom time.Duration, progress, write func()) {
	early := d.chance(0.1)
	for n := d.below(4); n > 0 || !early; n-- {
		if !p.nap(ctx.Done(), d.spread(p.lease()/20, seldom)) || ctx.Err() != nil {
			break
		}
		write()
		if p.w.plan.hang > 0 && !p.w.calm() && d.chance(p.w.plan.hang) {
			hangs := d.spread(seldom/3, 3*seldom)
			p.w.note("work hangs", hangs)
			p.nap(nil, hangs)
			write()
		}
		progress()
	}
	if early {
		return
	}
	p.nap(nil, d.between(1, 5*time.Millisecond)) // its ctx has ended
	if p.w.calm() || !d.chance(p.w.plan.overrun) {
		write()
		return
	}
	late := d.spread(p.lease()/10, 3*p.lease())
	p.w.note("work overruns", late)
	p.nap(nil, late)
	write()
}

func (p *process) begin(ctx context.Context, token spindle.Token) *term {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.term != nil && !p.term.returned && !p.dead {
		p.w.violate("one leader function", "%s leads under %v while its function for %v still runs", p.name, token, p.term.token)
	}
	p.term = &term{ctx: ctx, token: token, began: time.Now()}
	p.working++
	p.w.tracef(p, "leads under %v", token)
	t := p.term
	context.AfterFunc(ctx, func() { p.w.checkTold(p, t) })
	return t
}

func (p *process) end(t *term) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	t.returned, t.early, t.left = true, t.ctx.Err() == nil, time.Now()
	p.working--
	if !p.dead { // else its ctx ends at this very instant
		p.w.tracef(p, "work under %v has returned: %v", t.token, context.Cause(t.ctx))
	}
}

// ask calls HasLock. w.mu is held, so this is not an await.
func (p *process) ask() (bool, spindle.Token) {
	p.asking.Add(1)
	defer p.asking.Add(-1)
	return p.lock.HasLock()
}

// lost reports whether the term has ended for a reason other than the process's stop.
func (t *term) lost() bool {
	cause := context.Cause(t.ctx)
	return errors.Is(cause, spindle.ErrExpired) || errors.Is(cause, spindle.ErrSuperseded) || errors.Is(cause, spindle.ErrStalled)
}
