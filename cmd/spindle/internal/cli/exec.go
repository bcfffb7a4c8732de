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

const execHelp = `Exec stands for a lock, and runs CMD once it holds it, for as long as it does. CMD
is run directly, not by a shell, in a process group of its own, with
  SPINDLE_NAME   the lock's name
  SPINDLE_TABLE  the lock table
  SPINDLE_TOKEN  the fencing token of this term: a number that only grows
in its environment.

When CMD ends, what it left of its process group is killed, and the lock is
released. Exec ends with CMD's exit code then, or stands again with --restart.

When no heartbeat is acknowledged for a lease, the lock is lost. CMD gets SIGTERM
in time, and its whole group SIGKILL, so that it is gone before another may hold
the lock: a twentieth of a lease before the deadline, at most a second. --grace is how long it has
between the two, but never more than a quarter of the lease. The same where the
lock is taken away with spindle release: then another may start meanwhile.

Signals are passed on to CMD's group. SIGINT and SIGTERM end CMD, as far as it
likes, and exec with it; they end the waiting too.

What happens to exec happens to CMD: if exec is killed, even with SIGKILL, or is
stopped for longer than the lease allows, a watchdog process kills CMD's group at
once, and at the deadline. On Linux CMD itself also has the parent-death signal,
in case the watchdog is killed as well. What neither covers: a process that left
CMD's group, and a machine that stands still as a whole, where CMD may act for an
instant after it goes on. For those CMD has to show SPINDLE_TOKEN to whatever it
writes to, which refuses smaller tokens than it has seen.

Exit codes:
  those of CMD, or 128 and the number of the signal that ended it, and
  1    spindle failed: the message says why
  2    the command line is wrong
  75   the lock was not acquired in time (--try, --wait)
  76   the lock was lost, and CMD was ended
  126  CMD can't be run
  127  CMD was not found`

// execution is one run of exec.
type execution struct {
	standing
	lease   time.Duration
	grace   time.Duration
	wait    time.Duration
	try     bool
	restart bool
	args    []string

	signals chan os.Signal
	ended   os.Signal // the one that ends it, if any
}

func newExec(o *common) *cobra.Command {
	x := &execution{standing: standing{common: o}}
	c := &cobra.Command{
		Use:   "exec --name NAME [--] CMD [ARGS]...",
		Short: "Run a program while holding a lock",
		Long:  execHelp,
		Example: `  spindle exec --name nightly -- ./nightly-report --all
  spindle exec --name nightly --try -- ./nightly-report || [ $? = 75 ]
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
			return x.run(c.Context())
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	x.standing.flags(f)
	f.DurationVar(&x.lease, "lease", 10*time.Second, "how long the lock stays with a holder that is not heard of")
	f.DurationVar(&x.grace, "grace", 10*time.Second, "how long CMD may take to end when the lock is lost, at most a quarter of the lease")
	f.BoolVar(&x.try, "try", false, "give up at once where another holds the lock")
	f.DurationVar(&x.wait, "wait", 0, "give up when the lock was not acquired for so long (default: never)")
	f.BoolVar(&x.restart, "restart", false, "stand again whenever CMD has ended or the lock was lost")
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
		return misuse("--wait %v: it can't be less than nothing", x.wait)
	case x.grace < 0:
		return misuse("--grace %v: it can't be less than nothing", x.grace)
	}
	x.signals = make(chan os.Signal, 16)
	signal.Notify(x.signals, passedOn...)
	db, err := x.open(spindle.ClientOptions(x.lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	candidate, err := x.candidate(db, x.lease)
	if err != nil {
		return err
	}
	if err := child.Find(x.args[0]); err != nil {
		return codeOf(err) // a candidate that can't do the work must not get in the way of others
	}
	if err := x.verify(ctx, db.client()); err != nil {
		return err
	}
	for pause := time.Duration(0); ; {
		t, err := x.stand(ctx, candidate, pause)
		if err != nil {
			return err
		}
		began := time.Now()
		err = x.hold(t)
		var unable *child.StartError
		if !x.restart || x.ended != nil || errors.As(err, &unable) {
			return err
		}
		if err != nil {
			complain("%v; standing again", err)
		} else {
			x.say("%s has ended; standing again", x.args[0])
		}
		pause = max(x.lease/3-time.Since(began), x.lease/30) // others have their turn
	}
}

// stand returns once the lock is held.
func (x *execution) stand(ctx context.Context, c elect.Candidate, pause time.Duration) (*elect.Term, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	steps := make(chan elect.Step)
	go func() {
		elect.Sleep(ctx, c.Clock, pause)
		for ctx.Err() == nil {
			step := c.Try(ctx, elect.All, x.lease/3)
			steps <- step
			if step.Term != nil || x.try {
				return
			}
			elect.Sleep(ctx, c.Clock, step.Pause)
		}
		close(steps)
	}()
	var late <-chan time.Time
	if x.wait > 0 {
		timer := time.NewTimer(x.wait)
		defer timer.Stop()
		late = timer.C
	}
	greet := greeter{standing: &x.standing}
	var reason error
	for {
		select {
		case step, ok := <-steps:
			switch {
			case !ok:
				return nil, reason
			case step.Term != nil && reason == nil:
				x.say("holding %s, token %v", x.name, spindle.Token(step.Term.Token()))
				return step.Term, nil
			case step.Term != nil: // it came too late
				return nil, errors.Join(reason, x.giveBack(step.Term))
			case x.try && step.Err != nil && elect.Lasting(step.Err):
				return nil, x.explain(step.Err)
			case x.try:
				return nil, &exit{notInTime, fmt.Errorf("%s was not acquired: %w", x.name, whyNot(step))}
			case reason == nil:
				greet.see(step)
			}
		case s := <-x.signals:
			if reason == nil && ends(s) {
				x.ended = s
				reason = &exit{code: signalCode(s)}
				cancel()
			}
		case <-late:
			if reason == nil {
				reason = &exit{notInTime, fmt.Errorf("%s was not acquired in %v", x.name, x.wait)}
				cancel()
			}
		}
	}
}

func whyNot(step elect.Step) error {
	switch {
	case step.Err != nil:
		return step.Err
	case step.Seen[0].Exists && step.Seen[0].Writer != "":
		return fmt.Errorf("it is held by %s, token %v", show(step.Seen[0].Writer), spindle.Token(step.Seen[0].Token))
	}
	return errors.New("another was first")
}

// hold runs the program for as long as the term lasts, and gives the lock back.
func (x *execution) hold(t *elect.Term) error {
	t.Jeopardy = func(err error) {
		complain("jeopardy: %s is still held, for %s unless a heartbeat gets through: %v", x.name, short(t.Left()), err)
	}
	t.Safe = func() { complain("safe: heartbeats for %s get through again", x.name) }
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
	cause := context.Cause(t.Context())
	if t.Held() {
		if err := x.giveBack(t); err != nil {
			complain("%v", err)
		}
	} else {
		if cause == nil {
			cause = elect.ErrExpired // the machine was suspended, and no timer has noticed yet
		}
		t.End(cause)
	}
	switch {
	case r.err != nil:
		return codeOf(r.err)
	case cause != nil:
		return &exit{lost, fmt.Errorf("%s was lost: %w", x.name, cause)}
	case r.late:
		return &exit{lost, fmt.Errorf("%s was lost: no heartbeat was acknowledged for so long that %s had to end", x.name, x.args[0])}
	case r.code != 0:
		return &exit{code: r.code}
	}
	return nil
}

// A result is how a program ended.
type result struct {
	code int
	late bool  // it was told to end since the lock was nearly lost
	err  error // why it was not started
}

func (x *execution) giveBack(t *elect.Term) error {
	err := t.Release(context.Background(), errors.New("given back"))
	switch {
	case err == nil:
		x.say("released %s", x.name)
		return nil
	case errors.Is(err, table.ErrSuperseded):
		return fmt.Errorf("%s was taken away before it could be released", x.name)
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

// work runs the program, and returns when its group is gone: at its own end, or before the term's.
func (x *execution) work(t *elect.Term) (r result) {
	d := deadlines{lease: x.lease, grace: x.grace}
	known := d.extend(time.Now(), t.Left())
	c, err := child.Start(x.args, []string{
		"SPINDLE_NAME=" + x.name, "SPINDLE_TABLE=" + x.table, "SPINDLE_TOKEN=" + spindle.Token(t.Token()).String(),
	}, child.Watched(t.Left()-d.margin()/2, watchdogCommand))
	if err != nil {
		return result{err: err}
	}
	tick := time.NewTicker(d.margin() / 4)
	defer tick.Stop()
	over := t.Context().Done()
	for {
		select {
		case <-c.Done():
			r.code = c.Code()
			return r
		case s := <-x.signals:
			if ends(s) {
				x.ended = s
			}
			c.Signal(s)
		case <-over:
			over = nil
			d.lose(time.Now())
			complain("%s is lost: %v: ending %s", x.name, context.Cause(t.Context()), x.args[0])
		case <-tick.C:
			if t.Context().Err() != nil {
				break
			}
			left := t.Left()
			if until := d.extend(time.Now(), left); until.After(known) {
				known = until
				c.Allow(left - d.margin()/2)
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
