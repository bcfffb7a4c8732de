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

// Settings are a Lock's settings after its options have been applied. Use them in code that has to work with the same
// values.
type Settings struct {
	ID        string        // the holder's id, as other candidates see it (WithID)
	Lease     time.Duration // WithLease
	Heartbeat time.Duration // the time between two heartbeats, plus or minus a twentieth (WithHeartbeat)
}

// Settings returns the settings that are in effect: the values given to New, or their defaults. They never change, so
// Settings may be called before Run, and from any goroutine. If an argument of New is invalid (see Err), the settings
// are meaningless.
func (l *Lock) Settings() Settings {
	return Settings{ID: l.config.ID, Lease: l.config.Lease, Heartbeat: l.config.Heartbeat}
}

// An Option changes one setting of a Lock. Run reports an invalid value.
type Option interface{ forElectors }

// A LockOption is an Option that package lock accepts, too.
type LockOption interface {
	Option
	forLocks
}

// A GroupOption is an Option that package group accepts, too.
type GroupOption interface {
	Option
	forGroups
}

// A CommonOption is for locks of all kinds: New, package lock and package group accept it.
type CommonOption interface {
	LockOption
	GroupOption
}

type (
	forElectors interface{ options.ForElectors }
	forLocks    interface{ options.ForLocks }
	forGroups   interface{ options.ForGroups }
)

// Options combines several options into one. Use it to pass the same options to locks of several kinds.
func Options(opts ...CommonOption) CommonOption { return options.Join(opts...) }

// WithDuration is like WithLease, with the lease in milliseconds.
func WithDuration(ms int64) CommonOption {
	return options.Option(func(c *options.Config) { c.SetDuration(ms) })
}

// WithLease sets how long the lock stays held after its holder has stopped sending heartbeats. For example, if the
// holder crashes, other candidates can claim the lock once the lease has expired. The default is 10 s, and values from
// 100 ms to 24 h are allowed. Candidates for the same lock may have different leases. The lease of the current holder
// applies.
func WithLease(d time.Duration) CommonOption {
	return options.Option(func(c *options.Config) { c.SetLease(d) })
}

// WithHeartbeat sets the interval at which a holder renews its lease. The default is a third of the lease, and the
// maximum is nine tenths of the lease. Each interval is randomly lengthened or shortened by up to 5%, except with
// WithSharedRequests. A heartbeat that fails is retried sooner. If the interval is longer than three fifths of the
// lease, spindle serve counts even punctual heartbeats as late.
func WithHeartbeat(d time.Duration) CommonOption {
	return options.Option(func(c *options.Config) { c.SetHeartbeat(d) })
}

// WithPoll sets how often a candidate polls the lock while another process holds it. The default is a third of the
// candidate's lease or of the holder's lease, whichever is shorter. The interval must be shorter than the lease. Each
// interval is randomly shortened by up to 10%. A candidate that polls less often than the default may miss the
// announcement of a handover (WithHandover). With a Notifier, the default is nine tenths of the lease while the holder
// answers (WithNotifier). Messages can make a poll come sooner, but never delay it beyond the interval.
//
// If the lock can be claimed before the next poll is due, because the holder's lease expires, the candidate polls at
// that time, after a short random delay. The delay is at most 1/50 of the holder's lease, and never more than 1 s. It
// keeps candidates from all claiming the lock at the same time.
func WithPoll(d time.Duration) Option {
	return options.Option(func(c *options.Config) { c.SetPoll(d) })
}

// WithLockDelay makes a candidate wait for d after a lease has expired before it claims the lock. Use it if the work
// can have effects that arrive late and can't be fenced. A lock that was released can be claimed without this delay.
// The default is 0, and the maximum is 24 h. Use the same delay for every candidate.
func WithLockDelay(d time.Duration) LockOption {
	return options.Option(func(c *options.Config) { c.SetLockDelay(d) })
}

// WithID sets the id that identifies this process to other processes. The default id is unique and readable: it
// consists of the host name, the process id and a UUID. An id has 1 to 1024 bytes, and may contain the same characters
// as a lock's name.
func WithID(id string) CommonOption {
	return options.Option(func(c *options.Config) { c.SetID(id) })
}

// WithReclaim lets a restarted candidate claim the lock immediately if the holder has the same id as the candidate. The
// candidate waits neither for the holder's lease to expire nor for a lock delay. Use this option if the id survives a
// restart, such as the name of a pod in a StatefulSet. WithReclaim requires WithID.
//
// You must guarantee that two Locks with the same name and id never run at the same time. Before a Lock runs, every
// earlier Lock with its id must have stopped, including its work. If two of them run at the same time, they keep taking
// the lock from each other. Each time, both act as the holder until the earlier one's next heartbeat fails, and only
// fenced writes are safe.
func WithReclaim() GroupOption {
	return options.Option(func(c *options.Config) { c.Reclaim = true })
}

// WithValue publishes a value with each term, such as the leader's address, for Leader and observers to read. The value
// may be at most 64 KiB of UTF-8.
func WithValue(value string) CommonOption {
	return options.Option(func(c *options.Config) { c.SetValue(value) })
}

// WithLeader sets the leader function. It runs once in each term, in its own goroutine, and receives that Term. Its ctx
// ends when the function must stop. The error that context.Cause then returns is or wraps the reason:
//   - ErrSuperseded if the term's token is no longer valid, usually because another candidate has claimed the lock
//   - ErrExpired if no heartbeat was acknowledged before the deadline
//   - ErrStalled if the function has made no progress for too long (WithStall)
//   - ErrSteppedDown if the leader is giving up the lock because of StepDown or a handover request
//   - the cause of Run's ctx if Run's ctx has ended; with WithHandover, the function's ctx ends some time after that
//
// If a machine is suspended for longer than a lease, HasLock returns false as soon as the machine resumes. The function's
// ctx may end later, but at the latest when the next heartbeat is due.
//
// Until the leader function has returned, the lock is not released, and this Lock does not claim it again. If the
// function panics or calls os.Exit, the process ends and the lock expires.
//
// If the function returns before ctx ends, for example because it could not start its work, the lock is released
// immediately, unless WithKeepOnReturn is set. Another candidate can then lead. A function that works in other
// goroutines must therefore wait for ctx. After an early return, this Lock competes again only after a pause. The first
// pause is a third of the lease. Each further early return doubles the pause, up to three leases. A term of at least
// three leases resets it.
func WithLeader(lead func(ctx context.Context, term Term)) Option {
	return options.Option(func(c *options.Config) {
		c.Require(c.Lead == nil, "WithLeader is given twice; combine the two functions into one")
		if c.Require(lead != nil, "WithLeader(nil): pass a function, or omit the option") {
			c.Lead = func(ctx context.Context, under options.Lead) { lead(ctx, Term{under}) }
		}
	})
}

// WithKeepOnReturn makes the term continue when the leader function (WithLeader) returns before its ctx has ended. Use
// it for a function that only starts the work, or for work that is done once per term.
func WithKeepOnReturn() Option {
	return options.Option(func(c *options.Config) { c.KeepOnReturn = true })
}

// WithStall makes holding the lock depend on the work's progress. By default, a holder whose work hangs keeps the lock
// for as long as its heartbeats succeed. With WithStall, no more than the given time may pass between two reports of
// progress. To report progress, the leader function calls Term.Progress, the function of lock.Do or Once.Do calls
// lock.Progress, and the work of a group calls Partition.Progress. The lock watches the work until the work returns,
// even after its ctx has ended. The limit should be several times the longest step of the work, and must be at least
// the heartbeat interval. An elector with WithStall needs WithLeader.
//
// After half of the limit without progress, a warning is logged. After the whole limit, ctx ends with the cause
// ErrStalled, and HasLock returns false. The lock is released as soon as the work has returned. If the work has not
// returned within one lease, heartbeats stop and the lease expires. Another process can then hold the lock while the
// work still hangs, so only fenced writes are safe. This process does not compete until the work has returned.
//
// In a group, a stall ends only the ctx of the partition's work. As long as the member is alive, the partition moves
// only after the work has returned, however long that takes. After that, the member does not claim the partition again
// immediately. WithStall has no effect on locks of package lock that are held without Do.
func WithStall(d time.Duration) CommonOption {
	return options.Option(func(c *options.Config) {
		if c.Require(d > 0, "WithStall(%v) must be at least a heartbeat interval; to set no limit, omit the option", d) {
			c.Stall = d
		}
	})
}

// WithHandover makes a leader announce that it is about to stop, so that during a rolling update the lock is almost
// never without a leader. When Run's ctx ends, the leader makes the announcement and continues to work for a third of
// the lease and one round trip. During that time, the followers see the announcement. When the release is due, they
// poll frequently. Then the leader cancels its work's context, and releases the lock once the work has returned. If the
// work returns earlier, the leader releases the lock without further delay. The announcement delays the end of Run by
// at most one lease.
//
// WithHandover also makes the leader accept handover requests from RequestHandover and from candidates with a higher
// priority (WithPriority). A request has the same effect as a call to StepDown. To receive requests, the leader makes
// one more RPC per lease.
func WithHandover() GroupOption {
	return options.Option(func(c *options.Config) { c.Handover = true })
}

// WithPriority sets this candidate's priority to n, from 0 to 9. The default, 9, is the highest. Candidates yield to
// candidates of higher priority. If a location, such as a distant region, should lead only when no better candidate is
// available, give all its candidates a lower priority.
//
// A candidate asks a leader of lower priority to hand over the lock, if that leader has WithHandover. It never asks a
// leader of the same priority. Before it asks, the candidate must have polled successfully for three lease durations.
// If it has led before, only the time since its last term counts. When the lock becomes free, candidates of lower
// priority wait longer before they claim it. The additional wait is at most 1/50 of the last leader's lease, and never
// more than 1 s.
//
// If the new leader can't keep the lock for three lease durations, the old leader may be elected again. To keep the
// lock from moving back and forth, the old leader then refuses such requests for the first 10 leases of its new term.
// Each time this happens again, the period doubles, up to an hour, or up to 10 leases if that is longer.
func WithPriority(n int) Option {
	return options.Option(func(c *options.Config) { c.SetPriority(n) })
}

// WithObserver calls observe with each Event, one at a time and in order, in a separate goroutine. A slow observer does
// not delay the lock.
func WithObserver(observe func(Event)) GroupOption {
	return options.Option(func(c *options.Config) {
		if c.Require(observe != nil, "WithObserver(nil): pass a function, or omit the option") {
			c.Observe = func(e elect.Event) { observe(eventOf(e)) }
		}
	})
}

// WithSharedRequests lets locks of one process share requests. The locks must use the same Spanner client and the same
// table, and all of them must have this option. For a few locks, the option saves little.
//
// Locks with the same heartbeat interval send their heartbeats together, up to 500 in one commit. At the default
// interval, a thousand locks then need six commits per lease instead of three thousand. To join a commit, a heartbeat
// waits for up to 5 ms, or lease/50 if that is shorter. While earlier heartbeats are unanswered, it waits for up to
// lease/50, or lease/10 if transactions keep aborting each other. If one of the locks has been superseded, the commit
// fails, and is split into smaller commits until that lock is found. Polls that are due within 5 ms of each other can
// share one read.
func WithSharedRequests() LockOption {
	return options.Option(func(c *options.Config) { c.Shared = true })
}

// WithMeterProvider sets the provider for the lock's metrics, which docs/monitoring.md lists. The default is
// OpenTelemetry's global provider, otel.GetMeterProvider(). A program that has set up that provider does not need this
// option.
func WithMeterProvider(p metric.MeterProvider) CommonOption {
	return options.Option(func(c *options.Config) {
		if c.Require(p != nil, "WithMeterProvider(nil): pass a provider, or omit the option to use the global provider; to measure nothing, pass noop.NewMeterProvider()") {
			c.Meters = p
		}
	})
}

// WithTracerProvider sets the provider for the lock's spans. The lock creates a span for each election, handover and
// release, for each write that its fence rejects, and for every other step that fails. It creates no spans for polls
// and heartbeats that succeed. The default is OpenTelemetry's global provider, otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) CommonOption {
	return options.Option(func(c *options.Config) {
		if c.Require(p != nil, "WithTracerProvider(nil): pass a provider, or omit the option to use the global provider; to trace nothing, pass noop.NewTracerProvider()") {
			c.Tracers = p
		}
	})
}

// WithLogger sets the lock's logger. The lock logs the beginning and the end of each term, and problems that need
// attention, at level Info or above. It logs routine steps at level Debug. For a lock of package lock, acquiring and
// releasing are routine steps. The default is slog.Default().
func WithLogger(log *slog.Logger) CommonOption {
	return options.Option(func(c *options.Config) {
		if c.Require(log != nil, "WithLogger(nil): pass a logger, such as slog.New(slog.DiscardHandler) to log nothing") {
			c.Log = log
		}
	})
}
