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

// Settings are a Lock's settings after its options have been applied. They are for code that has to match them.
type Settings struct {
	ID        string        // the holder's id, as other candidates see it (WithID)
	Lease     time.Duration // WithLease
	Heartbeat time.Duration // the time between two heartbeats, plus or minus a twentieth (WithHeartbeat)
}

// Settings returns the values given to New, or the defaults. They do not change. Settings may be called before Run, and
// from any goroutine. If an argument of New is invalid, which Run reports, the settings are meaningless.
func (l *Lock) Settings() Settings {
	return Settings{ID: l.config.ID, Lease: l.config.Lease, Heartbeat: l.config.Heartbeat}
}

// An Option changes one setting of a Lock. Run reports an invalid option.
type Option func(*options.Config)

// WithDuration is like WithLease, with the lease in milliseconds.
func WithDuration(ms int64) Option {
	return func(c *options.Config) { c.SetDuration(ms) }
}

// WithLease sets how long the lock stays with a holder whose heartbeats have stopped. After a crash, the lock is
// without a holder for at most that long. The default is 10 s; values from 100 ms to 24 h are allowed. Candidates with
// different leases can share a lock, and the holder's lease is the one that counts.
func WithLease(d time.Duration) Option {
	return func(c *options.Config) { c.SetLease(d) }
}

// WithHeartbeat sets how often a holder renews its lease. The interval varies at random by up to a twentieth. The
// default is a third of the lease, and the maximum is nine tenths of it. A heartbeat that fails is retried sooner.
func WithHeartbeat(d time.Duration) Option {
	return func(c *options.Config) { c.SetHeartbeat(d) }
}

// WithPoll sets how often a candidate looks at the lock while another process holds it. Each interval is shortened at
// random by up to a tenth. The default is a third of the candidate's own lease or of the holder's lease, whichever is
// shorter. The interval must be shorter than the lease. A candidate that polls less often than the default may miss an
// announcement (WithHandover).
//
// If the holder's lease ends before the next poll, the candidate looks shortly after that end instead, at a random time
// within lease/50 (1 s at most), so that candidates don't all claim the lock simultaneously.
func WithPoll(d time.Duration) Option {
	return func(c *options.Config) { c.SetPoll(d) }
}

// WithLockDelay makes candidates wait for d after a lease has expired before they claim the lock. It is for work whose
// effects may arrive late and can't be fenced. A lock that was released can be claimed without this delay. The default
// is 0, and the maximum is 24 h. Use the same delay for every candidate.
func WithLockDelay(d time.Duration) Option {
	return func(c *options.Config) { c.SetLockDelay(d) }
}

// WithID sets the id under which other candidates see the holder. The default is unique and readable: it consists of
// the host, the process id and a UUID. An id is 1 to 1024 bytes of the characters that are allowed in a lock's name.
func WithID(id string) Option {
	return func(c *options.Config) { c.SetID(id) }
}

// WithReclaim lets a candidate claim the lock immediately if it is held under the candidate's own id. The candidate
// then waits neither for that lease to expire nor for a lock delay. The option is for ids that outlive the process,
// such as the name of a pod in a StatefulSet, and requires WithID.
//
// By using it, you guarantee that whenever a Lock with this name and id runs, every earlier Lock with that id has
// stopped, and so has its work. If two of them run at the same time, they keep taking the lock from each other, and
// both hold it for up to one heartbeat interval each time. Only fenced writes are safe in that case.
func WithReclaim() Option {
	return func(c *options.Config) { c.Reclaim = true }
}

// WithValue publishes a value with each term, such as the leader's address, for Leader and observers to read. It is at
// most 64 KiB of UTF-8.
func WithValue(value string) Option {
	return func(c *options.Config) { c.SetValue(value) }
}

// WithLeader runs lead once in each term, in its own goroutine, and passes it that Term. The ctx of lead ends when the
// lock is lost, when the deadline passes without an acknowledged heartbeat, when the lock is to be handed over, or when
// Run's ctx ends (with WithHandover, some time later). Use context.Cause to find out which: it returns ErrSuperseded,
// ErrExpired, ErrSteppedDown, or the cause of Run's ctx. On a machine that was suspended, ctx ends at the first
// heartbeat after the machine resumes, whereas HasLock returns false immediately.
//
// The lock is not released until lead has returned, and this process does not claim it again before then. If lead
// returns early, the term continues without it and a warning is logged, unless WithStepDownOnReturn is given. So don't
// return when you get ErrFenced, but wait for ctx to end, which can take up to one more heartbeat interval. If lead
// panics or calls os.Exit, the process ends and the lock expires.
func WithLeader(lead func(ctx context.Context, term Term)) Option {
	return func(c *options.Config) {
		if lead == nil {
			c.Refuse("WithLeader(nil): pass a function, or omit the option")
			return
		}
		if c.Lead != nil {
			c.Refuse("WithLeader is given twice; combine the two functions into one")
			return
		}
		c.Lead = func(ctx context.Context, under options.Lead) { lead(ctx, Term{under}) }
	}
}

// WithStepDownOnReturn makes the leader function (WithLeader) give up the lock when it returns. The lock is released
// immediately, so that other candidates can claim it. This process continues to compete, as after StepDown.
func WithStepDownOnReturn() Option {
	return func(c *options.Config) { c.StepDownOnReturn = true }
}

// WithHandover makes a leader announce that it is about to stop, so that the lock is almost never without a leader
// during a rolling update. When Run's ctx ends, the leader continues for a third of the lease and one round trip. In
// that time, the followers see the announcement and begin to look often. Then the leader cancels its work's context,
// and releases the lock once the work has returned. Run therefore takes that much longer to end, but no more than one
// extra lease. If the work returns by itself in the meantime, the remaining time is skipped.
//
// WithHandover also makes the leader look for handover requests (RequestHandover, WithPriority), which costs one more
// RPC per lease. It treats a request like a call to StepDown.
func WithHandover() Option {
	return func(c *options.Config) { c.Handover = true }
}

// WithPriority sets this candidate's priority to n, from 0 to 9. The default, 9, is the highest. Candidates yield to
// candidates of higher priority. Give a lower priority to all candidates in a location, such as a distant region, that
// should lead only if there is no better candidate.
//
// A candidate asks a leader of lower priority to hand over the lock once the candidate's looks have succeeded for three
// of its leases, counted from its own last term if it has had one. Leaders with WithHandover comply. A leader of the
// same priority is never asked. When the lock becomes free, candidates of lower priority wait longer before they look,
// by up to 1/50 of the last leader's lease (1 s at most).
//
// If a leader hands the lock over and is elected again before a candidate of higher priority has held it for three
// leases, it refuses such requests for the first 10 leases of the new term. Each time this happens again, that period
// doubles, up to an hour, or up to 10 leases if that is longer.
func WithPriority(n int) Option {
	return func(c *options.Config) { c.SetPriority(n) }
}

// WithObserver calls observe with each Event, one at a time and in order, in a separate goroutine. A slow observer does
// not delay the lock.
func WithObserver(observe func(Event)) Option {
	return func(c *options.Config) {
		if observe == nil {
			c.Refuse("WithObserver(nil): pass a function, or omit the option")
			return
		}
		c.Observe = func(e elect.Event) { observe(eventOf(e)) }
	}
}

// WithSharedRequests lets locks of this process share requests if they use the same Spanner client and table and all have
// this option. Locks with the same lease send their heartbeats at the same times, up to 500 of them in one commit, so a
// thousand locks take six commits per lease instead of three thousand. If one of the locks has been superseded, its commit
// is split until that lock is found. Looks that are due within 5 ms of each other share one read. A heartbeat waits for
// others for up to 5 ms, or lease/50 if that is shorter. For a few locks, the option saves little.
func WithSharedRequests() Option {
	return func(c *options.Config) { c.Shared = true }
}

// WithMeterProvider sets the provider for the lock's metrics, which docs/monitoring.md lists. The default is
// OpenTelemetry's global provider, otel.GetMeterProvider(), so a program that has set up that provider does not need
// this option.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *options.Config) {
		if p == nil {
			c.Refuse("WithMeterProvider(nil): pass a provider, or omit the option to use the global one; noop.NewMeterProvider() measures nothing")
			return
		}
		c.Meters = p
	}
}

// WithTracerProvider sets the provider for the lock's spans. There is a span for each election, handover and release,
// for each write that the fence rejected, and for every other step that fails. Looks and heartbeats that succeed have
// no span. The default is OpenTelemetry's global provider, otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *options.Config) {
		if p == nil {
			c.Refuse("WithTracerProvider(nil): pass a provider, or omit the option to use the global one; noop.NewTracerProvider() traces nothing")
			return
		}
		c.Tracers = p
	}
}

// WithLogger sets the lock's logger. Terms, and problems that need attention, are logged at Info and above; repeated
// steps are logged at Debug. The default is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(c *options.Config) {
		if log == nil {
			c.Refuse("WithLogger(nil): pass a logger; slog.New(slog.DiscardHandler) is silent")
			return
		}
		c.Log = log
	}
}
