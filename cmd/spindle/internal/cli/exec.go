package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

const execHelp = `Exec waits for a lock, and runs CMD while it holds the lock. CMD is run
directly, not by a shell, in a process group of its own. Its environment has
  SPINDLE_LOCK   the lock's name
  SPINDLE_TOKEN  the fencing token of this term: a number that only grows
  SPINDLE_DB     the database
  SPINDLE_TABLE  the lock table
so that spindle status "$SPINDLE_LOCK" in CMD asks about this lock. Variables
that set flags of exec itself, such as SPINDLE_NAME and SPINDLE_VALUE, are
removed: another exec in CMD must name its own lock. If it names the lock that
CMD runs under, it fails at once, since it would wait for itself.

When CMD ends, exec kills what is left of its process group, releases the lock,
and ends with CMD's exit code. With --restart it competes for the lock again.

With --try, only one of the machines that start CMD at the same time runs it. A
machine that starts it after it has ended elsewhere runs it again.
` + onceHelp + `
If no heartbeat is acknowledged for a lease, the lock is lost. CMD must be gone
before another may hold it. So its group gets SIGTERM in time, and SIGKILL a
twentieth of the lease, at most a second, before the deadline. --grace is the
time between the two signals: a quarter of the lease, or less if you say so. The
same happens if the lock is taken away with spindle release, but then the next
holder does not wait for CMD to end.

Exec passes signals on to CMD's group. After SIGINT, SIGTERM, SIGHUP or SIGQUIT
it ends when CMD has ended, or at once if it is waiting for the lock. Under
nohup, both ignore SIGHUP.

With --handover exec first announces that it will give the lock up. CMD gets the
signal a third of the lease later, so that another takes over as soon as CMD has
ended. A second signal is passed on at once. The same happens if spindle
handover or a candidate of higher priority asks: CMD gets SIGTERM, and once it
has ended exec competes for the lock again, even without --restart.

CMD does not outlive exec. If exec is killed, even with SIGKILL, a watchdog
process kills CMD's group at once, and releases the lock once the group is
certainly gone, so that the next machine need not wait for the lease. If exec is
stopped, the watchdog kills the group at the deadline. On Linux CMD also has a
parent-death signal, in case the watchdog is killed as well. Two things are not
covered: a process that left CMD's group, and a suspended machine, on which CMD
may act for an instant after it resumes. Against both, send SPINDLE_TOKEN with
each write, and have the receiver refuse any token smaller than one it has seen.

Exit codes:
  CMD's own, or 128 plus the number of the signal that ended it, and
  1    spindle failed: the message says why, and whether CMD succeeded
  2    the command line is wrong
  75   another holds the lock (--try), or held it for as long as --wait says
  76   the lock was lost, and CMD was ended
  126  CMD can't be run
  127  CMD was not found`

// execution is one run of exec.
type execution struct {
	competitor
	lease   time.Duration
	grace   time.Duration
	try     bool
	restart bool
	once    once
	args    []string

	rival   elect.Candidate
	asked   table.Request // that ended the last term, if any
	told    bool          // the program did not end before it was told to
	signals chan os.Signal
	ended   os.Signal // the one that ends exec, if any
}

func newExec(o *common) *cobra.Command {
	x := &execution{competitor: competitor{common: o}}
	c := &cobra.Command{
		Use:   "exec --name NAME [flags] [--] CMD [ARGS]...",
		Short: "Run a program while holding a lock",
		Long:  execHelp,

		DisableFlagsInUseLine: true, // they go before CMD
		Example: `  spindle exec --name nightly -- ./nightly-report --all
  spindle exec --name nightly --try -- ./nightly-report || [ $? = 75 ]
  spindle exec --name nightly --every 24h -- ./nightly-report    # from cron
  spindle exec --name migrate --once 0042 -- ./migrate
  spindle exec --name poller --restart --value "$(hostname -f):8080" ./poller`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && c.ArgsLenAtDash() == 0:
				return errors.New("there is no command after the --")
			case len(args) == 0 || args[0] == "":
				return errors.New("which command is to be run? Give it after the flags, and after -- if it begins with a dash")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			x.args = args
			if !c.Flags().Changed("grace") {
				x.grace = max(mostGrace(x.lease), 0)
			}
			return x.run(c.Context())
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	x.competitor.flags(f)
	f.DurationVar(&x.lease, "lease", 10*time.Second, "how long a silent holder keeps the lock")
	f.DurationVar(&x.grace, "grace", 0, "how long CMD may take to end when the lock is lost: a quarter of the lease at most")
	f.Lookup("grace").DefValue = "a quarter"
	f.BoolVar(&x.try, "try", false, "give up at once if another holds the lock")
	f.DurationVar(&x.wait, "wait", 0, "give up if the lock is not acquired in this time (default: never)")
	f.BoolVar(&x.restart, "restart", false, "compete again whenever CMD has ended or the lock was lost")
	x.once.flags(f)
	return c
}

func (x *execution) run(ctx context.Context) error {
	if err := child.Supported(); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	switch {
	case x.try && x.wait != 0:
		return misuse("--try and --wait: give one of them")
	case x.wait < 0:
		return misuse("--wait %v: must not be negative", x.wait)
	case x.grace < 0:
		return misuse("--grace %v: must not be negative", x.grace)
	}
	if err := x.checkOnce(); err != nil {
		return err
	}
	x.signals = make(chan os.Signal, 16)
	signal.Notify(x.signals, passedOn...)
	db, err := x.open(spindle.ClientOptions(x.lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	if x.rival, err = x.candidate(db, x.lease); err != nil {
		return err
	}
	if err := child.Find(x.args[0]); err != nil {
		return codeOf(err) // a candidate that can't do the work must not keep others from it
	}
	began := time.Now()
	if x.doesOnce() {
		x.once.retry.Max = x.lease / 3
		if err := x.glance(ctx); err != nil {
			return err
		}
	}
	if err := x.verify(ctx, db.client()); err != nil {
		return err
	}
	waited := time.Since(began)
	if most := mostGrace(x.lease); x.grace > most {
		x.complain("--grace %v is more than a quarter of the lease of %v: if the lock is lost, %s has %v to end", x.grace, x.lease, x.args[0], most)
	}
	for pause := time.Duration(0); ; {
		t, err := x.compete(ctx, pause, x.wait-waited)
		if err != nil {
			return err
		}
		began, waited = time.Now(), 0
		x.asked, x.told = "", false
		err = x.hold(t)
		var unable *child.StartError
		switch {
		case x.ended != nil || errors.As(err, &unable):
			return err
		case x.asked != "" && x.told:
			x.say("%s was handed over; competing again", x.name)
			pause = 0
			continue
		case !x.restart:
			return err
		case err != nil:
			x.complain("%v; competing again", err)
		default:
			x.say("%s has ended; competing again", x.args[0])
		}
		pause = max(x.lease/3-time.Since(began), x.lease/30) // others have their turn
	}
}

// compete returns once the lock is held, or with the reason why it will not be. With --wait it gives up after limit.
func (x *execution) compete(ctx context.Context, pause, limit time.Duration) (*elect.Term, error) {
	c := &x.rival
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	if x.wait > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	found := narrator{competitor: &x.competitor}
	for elect.Sleep(ctx, c.Clock, pause); ; {
		if why := x.givesUp(ctx); why != nil {
			return nil, why
		}
		step := x.step(ctx)
		if ctx.Err() == nil {
			x.trouble = step.Err
		}
		var over *exit
		switch {
		case errors.As(step.Err, &over):
			return nil, step.Err
		case x.within(step):
			return nil, fmt.Errorf("%s is held by the spindle that runs this command, which would wait for itself: it has the lock already", x.name)
		case errors.Is(step.Err, table.ErrGroup):
			return nil, fmt.Errorf("%s was not acquired: %w: take another name", x.name, step.Err)
		case step.Term != nil && ctx.Err() != nil: // it came too late
			return nil, errors.Join(x.givesUp(ctx), x.giveBack(step.Term, false))
		case step.Term != nil:
			x.token = step.Term.Token()
			x.say("holding %s, token %v", x.name, step.Term.Token())
			return step.Term, nil
		case ctx.Err() != nil: // the look was interrupted
		case x.try && step.Err != nil:
			return nil, x.explain(fmt.Errorf("%s was not acquired: %w", x.name, step.Err))
		case x.try:
			return nil, &exit{notInTime, fmt.Errorf("%s was not acquired: %w", x.name, whyNot(step))}
		default:
			found.tell(step)
			elect.Sleep(ctx, c.Clock, step.Pause)
		}
	}
}

// givesUp returns why the competition is over: a signal, or the end of ctx, which is that of the waiting.
func (x *execution) givesUp(ctx context.Context) error {
	for {
		select {
		case s := <-x.signals:
			if ends(s) {
				x.ended = s
				return &exit{code: signalCode(s)}
			}
		default:
			if ctx.Err() == nil {
				return nil
			}
			err := fmt.Errorf("%s was not acquired in %v", x.name, x.wait)
			if x.trouble != nil { // who holds it is not known
				return x.explain(fmt.Errorf("%w: %w", err, x.trouble))
			}
			return &exit{notInTime, err}
		}
	}
}

func whyNot(step elect.Step) error {
	if o := step.Seen[0]; o.Exists && o.Holder() != "" {
		return fmt.Errorf("it is held by %s, token %v", show(o.Holder()), o.Token)
	}
	return errors.New("another was first")
}

// hold runs the program under the term, and then releases the lock.
func (x *execution) hold(t *elect.Term) error {
	t.Jeopardy = func(err error) {
		x.complain("jeopardy: %s is still held, but only for %s unless a heartbeat gets through: %v", x.name, short(t.Left()), err)
	}
	t.Safe = func() { x.relieve("safe: heartbeats for %s get through again", x.name) }
	stop, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		if reason := t.Renew(x.lease/3, stop); reason != nil {
			t.End(reason)
		}
	}()
	r := x.work(t)
	close(stop)
	<-kept
	defer func() { x.token = 0 }()
	cause := context.Cause(t.Context())
	if t.Held() {
		err := x.giveBack(t, x.did(r))
		switch {
		case err != nil && x.did(r):
			return x.unrecorded(err)
		case err != nil:
			x.complain("%v", err)
		}
		if x.asked != "" {
			x.rival.GaveWay(t, err == nil, x.asked)
		}
	} else {
		if cause == nil {
			cause = elect.ErrExpired // the machine was suspended, and no timer has noticed yet
		}
		t.End(cause)
		x.asked = "" // it is lost, and not handed over
	}
	switch {
	case r.err != nil:
		return codeOf(r.err)
	case cause != nil && x.did(r):
		return x.unrecorded(cause)
	case cause != nil:
		return &exit{lost, fmt.Errorf("%s was lost: %w", x.name, cause)}
	case r.late:
		return &exit{lost, fmt.Errorf("%s was lost: no heartbeat was acknowledged in time, so %s had to end", x.name, x.args[0])}
	case r.code != 0:
		return &exit{code: r.code}
	}
	return nil
}

// A result is how a program ended.
type result struct {
	code int
	late bool  // it was told to end because the lock was nearly lost
	err  error // why it was not started
}

// giveBack releases the lock, and in the same commit records what was to be done once, if it is done.
func (x *execution) giveBack(t *elect.Term, done bool) error {
	outcome := ""
	if x.key != "" {
		outcome = ": " + x.key + " is not done"
	}
	var err error
	if done {
		outcome = ": " + x.key + " is done"
		err = t.Finish(context.Background(), errors.New("done"), x.key, x.id)
	} else {
		err = t.Release(context.Background(), errors.New("given back"))
	}
	switch {
	case err == nil:
		x.say("released %s%s", x.name, outcome)
		return nil
	case errors.Is(err, table.ErrSuperseded):
		return fmt.Errorf("%s was taken away before it could be released", x.name)
	case done && t.Recorded(context.Background(), x.key): // only the reply was lost, again and again
		x.say("left %s to expire%s", x.name, outcome)
		return nil
	}
	return fmt.Errorf("%s could not be released: %w", x.name, err)
}

func codeOf(err error) error {
	var s *child.StartError
	if errors.As(err, &s) {
		return &exit{s.Code, err}
	}
	return err
}

// work runs the program. It returns when the program's group is gone: at its own end, or before the term's.
func (x *execution) work(t *elect.Term) (r result) {
	if err := x.again(t); err != nil {
		return result{err: err}
	}
	d := deadlines{lease: x.lease, grace: x.grace}
	known := d.extend(time.Now(), t.Left())
	c, err := child.Start(x.args, x.environment(t.Token()), child.Watched(known.Add(-d.margin()/2), x.watchdogEnvironment(),
		watchdogCommand, "exec", x.db, x.table, x.name, x.id, x.lease.String(), t.Token().String()))
	if err != nil {
		return result{err: err}
	}
	tick := time.NewTicker(d.margin() / 4)
	defer tick.Stop()
	over := t.Context().Done()
	p := x.parting(t)
	defer p.cancel()
	for {
		select {
		case <-c.Done():
			r.code = c.Code()
			return r
		case s := <-x.signals:
			if ends(s) {
				x.ended = s
				if x.handover && p.begin(s) {
					x.say("leaving %s: %s gets %v when the other candidates know", x.name, x.args[0], s)
					break
				}
				p.cancel() // who asks again means at once
			}
			c.Signal(s)
		case by := <-p.asked:
			if p.begin(terminationSignal) {
				x.asked = by
				x.say("asked to hand %s over: %s gets %v when the other candidates know", x.name, x.args[0], terminationSignal)
			}
		case s := <-p.known:
			x.told = true
			c.Signal(s)
		case <-over:
			over = nil
			d.lose(time.Now())
			x.complain("%s is lost: %v: ending %s, which is killed after %v", x.name, context.Cause(t.Context()), x.args[0], d.patience())
		case <-tick.C:
			if t.Context().Err() != nil {
				break
			}
			if until := d.extend(time.Now(), t.Left()); until.After(known) {
				known = until
				c.Allow(until.Add(-d.margin() / 2))
			}
		}
		switch d.due(time.Now()) {
		case terminate:
			r.late = true
			c.Signal(terminationSignal)
		case kill:
			r.late = true
			c.Kill()
		}
	}
}
