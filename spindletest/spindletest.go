// Package spindletest is for tests of code that uses locks: a lock table in memory for unit tests, and a database on
// the Cloud Spanner emulator for integration tests. On both, a test makes a [Process] for each process of the service
// that it plays, cuts it off, or lets another supersede it.
//
// The code under test needs one thing: it passes the test's options on to its lock.
//
//	func NewWorker(db *spanner.Client, table string, opts ...spindle.Option) *Worker {
//		w := &Worker{}
//		w.lock = spindle.New(db, table, "worker", append(opts, spindle.WithLeader(w.lead))...)
//		return w
//	}
//
// # Unit tests
//
// [NewFake] returns a lock table in memory. With testing/synctest, which every Go that builds this module has, time is
// virtual: tests of minutes take milliseconds, and their times are exact.
//
//	func TestItStopsWhenItIsCutOff(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			a := spindletest.NewFake(t).Process("a")
//			w := NewWorker(a.Client, a.Table, a.Option())
//			go w.Run(t.Context())
//			synctest.Wait()
//			if !w.Working() {
//				t.Error("it is alone, and does not work")
//			}
//			a.Cut()
//			time.Sleep(10 * time.Second) // a lease
//			if w.Working() {
//				t.Error("it works without the lock")
//			}
//		})
//	}
//
// Make the fake in the bubble, with the bubble's t. To step time, sleep, or wait for the next event; synctest.Wait lets
// everything due happen first. A test that can't be in a bubble, because it talks over a network, has the fake in real
// time: give its locks a short lease, down to 100 ms, and wait for events.
//
// # Integration tests
//
// [New] returns a database with the lock table, in real time. It shows what no fake can: what was written, and how
// Spanner behaves. The fake only shows whether a write would be fenced. New does not work in a bubble of
// testing/synctest, where time stands still while something waits for a network.
//
//	func TestTheOtherTakesOver(t *testing.T) {
//		db := spindletest.New(t)
//		a, b := db.Process("a"), db.Process("b")
//		...
//		a.Cut()
//	}
//
// A test waits for a loss or a takeover with [Events], for the leader with Wait and WaitElected of spindle.Lock, and
// for the loss of a mutex, a set or a permit with Lost. The file worker_test.go of this package has a small service
// with its tests of both kinds.
//
// # The emulator
//
// The database is on the emulator at SPANNER_EMULATOR_HOST if that is set. Otherwise New finds and starts an emulator:
// from the path in SPINDLE_EMULATOR, from emulator_main in PATH, from the gcloud component cloud-spanner-emulator, or
// from its Docker image. The tests of a package share it; it ends with their process, even if that is killed. Each
// package has its own, which takes less than a tenth of a second to start, or seconds with Docker.
//
// Each database has an instance of its own, so tests can run in parallel: the emulator runs one read-write transaction
// at a time in each database and aborts the others. If many run at once on one client, it forgets some, and fails them
// with "Transaction not found" or "Invalid transaction ID", which Spanner does not do. Spindle then retries its own
// commits, such as Apply and ReadWriteTransaction of a lock. Transactions that a test runs on the client itself fail:
// give concurrent writers a client each, or let them write with spanner.ApplyAtLeastOnce.
//
// The emulator gets slower with each commit, in any of its databases: a read takes 0.7 ms at first, and 22 ms after
// 12,000 commits. The log of a test says so if reads take more than 10 ms when it ends. Give a test that commits
// thousands of times an emulator of its own with [Private], so that the tests after it are not slow, and restart an
// emulator that runs for days.
//
// After the cleanups nothing of this package is left running. The Spanner client may leave two things, which tests that
// use go.uber.org/goleak must ignore: a worker that OpenCensus starts with the process, and, if a metadata server
// answers, a connection to it, idle for a minute. The client asks that server for the region once in each process,
// unless SPANNER_EMULATOR_HOST is set.
//
//	goleak.VerifyTestMain(m,
//		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
//		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
//		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
//	)
package spindletest

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

// lockTable is the name of the lock table in every database.
const lockTable = "locktable"

// setupTimeout bounds New, and cleanupTimeout what follows the test. The first must be enough to pull the emulator's
// image.
const (
	setupTimeout   = 6 * time.Minute
	cleanupTimeout = 10 * time.Second
)

// A Database is an empty database for one test.
type Database struct {
	// Client is connected to the database. It is closed after the test.
	Client *spanner.Client

	// Path has the form projects/P/instances/I/databases/D.
	Path string

	// Table is the name of the lock table.
	Table string

	// Host is the emulator's address as host:port.
	Host string

	tb       testing.TB
	emulator *emulator.Emulator
	private  bool
	stopped  bool
}

// New returns a new database with the lock table. When the test and its subtests are over, the client is closed and the
// database is dropped.
//
// The first emulator of a run takes about half a second to start, or as long as it takes to pull its image; a database
// takes milliseconds. If no emulator is found, the test fails with an error that says how to install one. It is never
// skipped.
func New(tb testing.TB, opts ...Option) *Database {
	tb.Helper()
	o := config{dialect: databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL}
	for _, opt := range opts {
		opt(&o)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), setupTimeout)
	defer cancel()

	d := &Database{Table: lockTable, tb: tb, private: o.private}
	d.run(ctx, tb, o)
	d.create(ctx, tb, o)
	d.connect(tb)
	return d
}

// run finds or starts the emulator.
func (d *Database) run(ctx context.Context, tb testing.TB, o config) {
	tb.Helper()
	e, err := o.emulator(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	d.emulator, d.Host = e, e.Addr()
	if d.private {
		tb.Cleanup(func() {
			if err := e.Close(); err != nil {
				tb.Error(err)
			}
		})
	}
}

func (d *Database) create(ctx context.Context, tb testing.TB, o config) {
	tb.Helper()
	statements := append([]string{ddl.Statement(o.dialect, lockTable)}, o.statements...)
	path, err := d.emulator.CreateDatabase(ctx, o.dialect, statements...)
	if err != nil {
		tb.Fatal(err)
	}
	d.Path = path
	if d.private {
		return // it ends with its emulator, which may have ended by then
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := d.emulator.DropDatabase(ctx, path); err != nil {
			tb.Error(err)
		}
	})
}

func (d *Database) connect(tb testing.TB) {
	tb.Helper()
	// Not the test's context, which ends before the cleanups that may use the
	// client.
	client, err := d.emulator.Connect(context.Background(), d.Path)
	if err != nil {
		tb.Fatal(err)
	}
	d.Client = client
	tb.Cleanup(func() {
		if !d.stopped {
			d.tellIfSlow(slowRead)
		}
		client.Close()
	})
}

// ClientOptions returns the options with which further clients of this process connect to the emulator, whatever the
// environment says.
func (d *Database) ClientOptions() []option.ClientOption {
	return d.emulator.ClientOptions()
}

// Env returns variables to append to a child process's environment. With them, its Spanner clients connect to the
// emulator.
func (d *Database) Env() []string {
	return []string{"SPANNER_EMULATOR_HOST=" + d.Host}
}

// StopEmulator kills the emulator, with everything in it, and returns when it has ended. The test fails at once unless
// the database was made with [Private], because other tests may use the emulator.
func (d *Database) StopEmulator(tb testing.TB) {
	tb.Helper()
	if !d.private {
		tb.Fatal("spindletest: other tests may use this emulator, so it cannot be stopped: use New with Private() to have one to stop")
	}
	d.stopped = true
	if err := d.emulator.Close(); err != nil {
		tb.Fatal(err)
	}
}
