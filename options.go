package spindle

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
)

// Settings are the settings of a Lock once its options are applied, for code that must fit them.
type Settings struct {
	ID        string        // the holder's id, as other candidates see it: WithID
	Lease     time.Duration // WithLease
	Heartbeat time.Duration // between two heartbeats, give or take a twentieth: WithHeartbeat
}

// Settings returns what was given to New, or the defaults. They do not change. It may be called from any goroutine, and
// before Run. If an argument of New is wrong, which Run reports, they mean nothing.
func (l *Lock) Settings() Settings {
	return Settings{ID: l.config.ID, Lease: l.config.Lease, Heartbeat: l.config.Heartbeat}
}

// An Option changes one thing about a Lock. If it is wrong, Run says so.
type Option func(*options.Config)

// WithDuration is WithLease in milliseconds.
func WithDuration(ms int64) Option {
	return func(c *options.Config) { c.SetDuration(ms) }
}

// WithLease sets how long the lock stays with a holder that is not heard from: after a crash, the lock has no holder
// for at most that long. The default is 10 s; 100 ms to 24 h are allowed. Candidates with different leases can share a
// lock: the holder's lease counts.
func WithLease(d time.Duration) Option {
	return func(c *options.Config) { c.SetLease(d) }
}

// WithHeartbeat sets how often a holder renews its lease, give or take a twentieth at random. The default is every
// third of the lease; at most nine tenths of the lease are allowed. A heartbeat that fails is retried sooner.
func WithHeartbeat(d time.Duration) Option {
	return func(c *options.Config) { c.SetHeartbeat(d) }
}

// WithPoll sets how often a candidate looks at the lock while another holds it, less up to a tenth at random. The
// default is every third of the lease: its own or the holder's, whichever is shorter. It must be shorter than the
// lease. A candidate that polls less often than the default may miss an announcement (WithHandover). If the holder's
// lease ends before the next poll, the candidate looks then: at a random time within lease/50 (1 s at most) after its
// end, so that many candidates don't all claim at once.
func WithPoll(d time.Duration) Option {
	return func(c *options.Config) { c.SetPoll(d) }
}

// WithLockDelay makes candidates wait for d after a lease has expired before they claim the lock. It is for
// work whose effects may arrive late and can't be fenced. A lock that was released is claimed at once. The
// default is 0; at most 24 h are allowed. Give every candidate the same.
func WithLockDelay(d time.Duration) Option {
	return func(c *options.Config) { c.SetLockDelay(d) }
}

// WithID sets the id that other candidates see for the holder. The default is unique and readable: host, process id and
// a UUID. An id has 1 to 1024 bytes, of the characters that a lock's name may have.
func WithID(id string) Option {
	return func(c *options.Config) { c.SetID(id) }
}

// WithReclaim lets a candidate take the lock at once if it is held under the candidate's own id, without waiting for
// that lease to expire, nor for a lock delay. It is for ids that outlive the process, such as the name of a
// StatefulSet's pod, and needs WithID.
//
// You promise that when a Lock with this name and id runs, every earlier one with that id has ended, and so has its
// work. Two that run at the same time take the lock from each other again and again, and both hold it for up to a
// heartbeat interval; only fenced writes are safe then.
func WithReclaim() Option {
	return func(c *options.Config) { c.Reclaim = true }
}

// WithValue publishes a value with each term, such as the leader's address. Leader and observers see it. It has at most
// 64 KiB of UTF-8.
func WithValue(value string) Option {
	return func(c *options.Config) { c.SetValue(value) }
}

// WithLeader runs lead once in each term, with that Term, in a goroutine of its own. Its ctx ends when the lock is
// lost, when the deadline passes without an acknowledged heartbeat, when the lock is to be handed over, or when Run's
// ctx ends (later with WithHandover). context.Cause says which: ErrSuperseded, ErrExpired, ErrSteppedDown, or the cause
// of Run's ctx. On a machine that was suspended, ctx ends at the first heartbeat after the resume; HasLock returns
// false at once.
//
// The lock is not released before lead has returned, and this process does not claim it again before that. If lead
// returns early, the term continues without it, with a warning in the log, unless WithStepDownOnReturn is given. So
// don't return at ErrFenced: wait for the end of ctx, which may come up to a heartbeat interval later. A panic of lead,
// or os.Exit in it, ends the process: the lock expires.
func WithLeader(lead func(ctx context.Context, term Term)) Option {
	return func(c *options.Config) {
		if lead == nil {
			c.Refuse("WithLeader(nil): give it a function, or leave it out")
			return
		}
		if c.Lead != nil {
			c.Refuse("WithLeader is given twice: give it one function that does both")
			return
		}
		c.Lead = func(ctx context.Context, under options.Lead) { lead(ctx, Term{under}) }
	}
}

// WithStepDownOnReturn makes the leader function (WithLeader) give up the lock by returning. The lock is released at
// once, for others to claim. This process still competes, as after StepDown.
func WithStepDownOnReturn() Option {
	return func(c *options.Config) { c.StepDownOnReturn = true }
}

// WithHandover makes a leader announce that it stops, so that a rolling update leaves next to no time without a leader.
// When Run's ctx ends, the leader continues for a third of the lease and a round trip, in which the followers see the
// announcement and begin to look often. Then the leader cancels its work's context, and releases the lock once the work
// has returned. So Run takes that much longer to end, at most a lease more. If the work returns by itself meanwhile,
// the rest of that time is skipped.
//
// WithHandover also makes the leader look for handover requests (RequestHandover, WithPriority), in one more RPC a
// lease. It handles a request like StepDown.
func WithHandover() Option {
	return func(c *options.Config) { c.Handover = true }
}

// WithPriority makes this candidate yield to others of higher priority: n is 0 to 9, the default. Give a lower one to
// all candidates in a place, such as a distant region, that should lead only if there is no better candidate.
//
// A candidate of higher priority asks the leader to hand the lock over, once it has looked at the lock without an error
// for three of its leases; these begin anew after a term of its own. Leaders with WithHandover comply. Nobody asks a
// leader of the same priority. When the lock becomes free, lower priorities look up to lease/50 (1 s at most) later, by
// the last leader's lease. If a leader hands over, and is elected again before one of higher priority has held the lock
// for three leases, it refuses such requests for 10 leases, and twice as long each time, up to an hour, or 10 leases if
// these are longer.
func WithPriority(n int) Option {
	return func(c *options.Config) { c.SetPriority(n) }
}

// WithObserver calls observe with each Event, one at a time and in order, in a goroutine of its own. A slow
// observer does not delay the lock.
func WithObserver(observe func(Event)) Option {
	return func(c *options.Config) {
		if observe == nil {
			c.Refuse("WithObserver(nil): give it a function, or leave it out")
			return
		}
		c.Observe = func(e elect.Event) { observe(eventOf(e)) }
	}
}

// WithSharedRequests lets the locks of this process that use the same Spanner client and table, and this option, share
// requests. Heartbeats of locks with the same lease are sent at the same times, up to 500 of them in one commit: a
// thousand locks take six commits a lease instead of three thousand. If one of the locks was superseded, the commit is
// split until that lock is found. Looks that are due within 5 ms of each other go into one read. A heartbeat waits up to 5
// ms, or lease/50 if that is shorter, for others. With one lock, or few, the option saves little.
func WithSharedRequests() Option {
	return func(c *options.Config) { c.Shared = true }
}

// WithMeterProvider sets where the lock's metrics go; docs/monitoring.md lists them. The default is OpenTelemetry's
// global provider, otel.GetMeterProvider(): a program that has set it up needs no option.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *options.Config) {
		if p == nil {
			c.Refuse("WithMeterProvider(nil): give it a provider, or leave it out for the global one; noop.NewMeterProvider() measures nothing")
			return
		}
		c.Meters = p
	}
}

// WithTracerProvider sets where the lock's spans go: for an election, a handover, a release, a write that the fence
// refused, and every other step that fails. Looks and heartbeats that succeed have no span. The default is
// OpenTelemetry's global provider, otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *options.Config) {
		if p == nil {
			c.Refuse("WithTracerProvider(nil): give it a provider, or leave it out for the global one; noop.NewTracerProvider() traces nothing")
			return
		}
		c.Tracers = p
	}
}

// WithLogger sets where the lock logs. Terms, and problems that need a person, are logged at Info and above; steps
// that repeat are logged at Debug. The default is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(c *options.Config) {
		if log == nil {
			c.Refuse("WithLogger(nil): give it a logger; slog.New(slog.DiscardHandler) is silent")
			return
		}
		c.Log = log
	}
}
