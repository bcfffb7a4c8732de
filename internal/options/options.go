// Package options checks the options that callers pass to the public packages (check.go), and creates lock tables and
// candidates with those options.
package options

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// DefaultLease is the lease if no option sets one.
const DefaultLease = 10 * time.Second

// defaultBatch is how many partitions one commit moves by default. Such a commit writes a few thousand columns. Spanner
// allows 80,000, but a commit of that size would delay reads.
const defaultBatch = 500

// Config contains the settings that result from the options. The method Table also sets gate and site.
type Config struct {
	Lock
	Elector
	Group
	Seams

	gate *elect.Gate  // of the client and the table
	site notify.Place // where its locks are, for notifications
	faults
}

// Lock has the settings that all locks share.
type Lock struct {
	ID        string
	Lease     time.Duration
	Heartbeat time.Duration
	LockDelay time.Duration
	Value     string
	Stall     time.Duration    // how long the work may go without progress; 0: forever
	Shared    bool             // whether to send its requests together with other locks' requests
	Notifier  *notify.Notifier // nil: none
	Log       *slog.Logger
	Meters    metric.MeterProvider // nil: the global one
	Tracers   trace.TracerProvider // nil: the global one
}

// Elector has the settings for electors. Some of them are for groups, too.
type Elector struct {
	Poll         time.Duration // 0: a third of the shorter lease, the holder's or this candidate's
	Reclaim      bool
	Handover     bool
	Rank         int  // how far the priority is below the highest one
	KeepOnReturn bool // the term continues after the leader function has returned
	Lead         func(context.Context, Lead)
	Observe      func(elect.Event)
}

// Lead is the term of a leader function.
type Lead struct {
	*elect.Term
	Fence    fence.Fence
	Stall    *loop.Stall
	StepDown func(context.Context) error
}

// Group has the settings for groups.
type Group struct {
	Work         func(ctx context.Context, partition string, f fence.Fence, s *loop.Stall) error
	OnReturn     OnReturn
	InitialDelay time.Duration // how long a new group waits for more members; negative: the default
	Weight       int
	Identity     time.Duration // how long a missing member's share is remembered; negative: the default
}

// Seams are settings for tests, and for processes that hold locks on behalf of others.
type Seams struct {
	Store    table.Store // nil: Spanner's
	Database string      // the path of Store's database; "": the client's, or none
	Clock    elect.Clock // by default the machine's
	Process  string      // the process whose goroutines queue together; "": the real one
	Batch    int         // how many partitions of a group one commit moves

	Requests *batch.Requests                 // sends the requests if they are shared; nil: the instance for the client and the table
	Look     time.Duration                   // the longest pause between two polls while no holder answers; 0: the default
	HoldOff  func(name string) time.Duration // returns how long to leave a lock to other candidates; may be nil
	Owner    string                          // on whose behalf it claims; each owner can have only a few claims in flight; "": the process itself
	Mute     <-chan struct{}                 // ends the heartbeats once it is closed
	Happened func(elect.TermEvent)           // called for each event of a term, from other goroutines; must not block
}

// OnReturn says how a member of a group reacts if the work on a partition returns early.
type OnReturn int

// The reactions: the work begins again, the partition stays without work, or it is released for a while.
const (
	BeginAgain OnReturn = iota
	KeepIdle
	Release
)

// String describes the reaction, for logs.
func (o OnReturn) String() string {
	return [...]string{"it begins again", "the partition stays without work", "the partition is released for a while"}[o]
}

// Option is a setting. The public packages return each Option as an interface, which determines the kinds of locks that
// accept it. Tests, and processes that hold locks on behalf of others, pass a plain Option, which every constructor
// accepts.
type Option func(*Config)

// The kinds of locks that an option can be for. If an option is not for a kind, the compiler names the missing method.
type (
	ForElectors interface{ forElectors() }
	ForLocks    interface{ forLocks() }
	ForGroups   interface{ forGroups() }
)

func (Option) forElectors() {}
func (Option) forLocks()    {}
func (Option) forGroups()   {}

// Join returns an option that applies all the given options.
func Join[O any](opts ...O) Option {
	return func(c *Config) {
		for i, opt := range opts {
			if set, ok := any(opt).(Option); c.Require(ok, "option %d is nil, or wrapped in a type of your own: remove it", i+1) {
				set(c)
			}
		}
	}
}

// New applies the options and fills in the defaults.
func New[O any](opts []O) Config {
	c := Config{Lock: Lock{Lease: DefaultLease, Log: slog.Default()}, Group: Group{InitialDelay: -1, Identity: -1},
		Seams: Seams{Clock: elect.SystemClock{}, Batch: defaultBatch}}
	Join(opts...)(&c)
	c.checkTogether()
	c.ID = cmp.Or(c.ID, defaultID())
	c.Heartbeat = cmp.Or(c.Heartbeat, c.Lease/3)
	if c.InitialDelay < 0 {
		c.InitialDelay = c.Lease / 3
	}
	if c.Identity < 0 {
		c.Identity = 0
		if c.Reclaim {
			c.Identity = 10 * c.Lease
		}
	}
	return c
}

func defaultID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

// Table returns the lock table, and the Spanner store for its fences. Candidates with the same client and table share
// one gate for their claims.
func (c *Config) Table(db *spanner.Client, name string) (table.Table, table.Spanner) {
	s := table.Spanner{DB: db, Table: name, Memory: c.Store}
	store := table.Store(s)
	if c.Store != nil {
		store = c.Store
	}
	requests := c.Requests
	if requests == nil && db != nil {
		requests = batch.Of(db, name)
	}
	if requests != nil {
		c.gate = &requests.Claims
		if c.Shared {
			store = requests.Store(store, c.Lease)
		}
	}
	t := table.Table{Store: store}
	if n := c.Notifier; n != nil {
		database := c.Database
		if c.Store == nil && db != nil {
			database = db.DatabaseName()
		}
		at := notify.PlaceOf(database, table.Canonical(name))
		n.Report(telemetry.Scope{Meters: c.Meters}.Meter())
		c.site, t.Notify = at, func(row string) string { return n.Contact(at, row) }
	}
	return t, s
}

// Ear returns the ear of a waiter, or nil without a Notifier.
func (c *Config) Ear() *notify.Ear { return c.Notifier.Listen(c.site, c.Lease) }

// Book begins the book of a term with the given locks. The book is empty without a Notifier.
func (c *Config) Book(t *elect.Term, locks ...notify.Term) notify.Book {
	for i := range locks {
		l := &locks[i]
		l.Place, l.Token, l.Lease, l.Alive = c.site, t.Token(), c.Lease, t.Secure
	}
	return c.Notifier.Hold(locks...)
}

// Grace returns how long the work may continue after Run's ctx has ended.
func (c *Config) Grace() time.Duration {
	if c.Handover {
		return 2 * c.Lease // an announcement can take up to a lease
	}
	return c.Lease
}

// Run returns the settings for a Run.
func (c *Config) Run(log *slog.Logger, wrap func(step string, err error) error) loop.Settings {
	return loop.Settings{Lease: c.Lease, Grace: c.Grace(), Clock: c.Clock, Log: log, Wrap: wrap, Observe: c.Observe}
}

// Keeper returns a keeper for the term, with these options.
func (c *Config) Keeper(t *elect.Term, notify func(elect.TermEvent)) *elect.Keeper {
	if happened := c.Happened; happened != nil {
		own := notify
		notify = func(e elect.TermEvent) { own(e); happened(e) }
	}
	return &elect.Keeper{Term: t, Interval: c.Heartbeat, InPhase: c.Shared, Mute: c.Mute, Notify: notify}
}

// Telemetry returns the scope for reports on locks in the table.
func (c *Config) Telemetry(tableName string, locks ...string) telemetry.Scope {
	return telemetry.Scope{Meters: c.Meters, Tracers: c.Tracers, Table: tableName, Locks: locks}
}

// Enter waits until the gate admits another claim. The caller must call leave when its request has been answered.
func (c *Config) Enter(ctx context.Context) (leave func(), err error) {
	return c.gate.Enter(ctx, c.Clock, elect.Patient, c.Owner)
}

// Count counts claims that do not wait for the gate. The caller must call done when they have been answered.
func (c *Config) Count() (done func()) { return c.gate.Count() }

// Candidate returns a candidate for the names, with these options.
func (c *Config) Candidate(t table.Table, names ...string) elect.Candidate {
	return elect.Candidate{
		Table: t, Clock: c.Clock, Names: names, ID: c.ID,
		LeaseRecord: table.LeaseRecord{Lease: c.Lease, ID: c.ID, Value: c.Value, AcceptsHandover: c.Handover, Rank: c.Rank},
		LockDelay:   c.LockDelay, Reclaim: c.Reclaim, HoldOff: c.HoldOff, Gate: elect.Entrance{Gate: c.gate, Owner: c.Owner},
	}
}
