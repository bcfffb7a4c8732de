// Package spindletest helps you test code that uses locks. It provides a lock table in memory for unit tests, and a
// database on the Cloud Spanner emulator for integration tests. On both, a test can simulate several processes of a
// service: it creates a [Process] for each one, can cut a process off from the table, and can make another process take
// over a lock.
//
// The code under test has to meet one requirement: it must pass the test's options on to its lock.
//
//	func NewWorker(db *spanner.Client, table string, opts ...spindle.Option) *Worker {
//		w := &Worker{}
//		w.lock = spindle.New(db, table, "worker", append(opts, spindle.WithLeader(w.lead))...)
//		return w
//	}
//
// # Unit tests
//
// [NewFake] returns a lock table in memory. Use it with testing/synctest, which is part of every Go version that can
// build this module. Time is then virtual, so a test that covers minutes takes milliseconds, and its times are exact.
//
//	func TestItStopsWhenItIsCutOff(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			a := spindletest.NewFake(t).Process("a")
//			w := NewWorker(a.Client, a.Table, a.Option())
//			go w.Run(t.Context())
//			synctest.Wait()
//			if !w.Working() {
//				t.Error("the only candidate is not working")
//			}
//			a.Cut()
//			time.Sleep(10 * time.Second) // one lease
//			if w.Working() {
//				t.Error("the worker continues without the lock")
//			}
//		})
//	}
//
// Create the fake inside the bubble, with the bubble's t. To advance the time, sleep or wait for the next event. Call
// synctest.Wait to run everything that is already due. A test that uses a real network can't run in a bubble. Such a
// test can use the fake in real time, if its locks have a short lease (at least 100 ms) and the test waits for events.
//
// # Integration tests
//
// [New] returns a database with the lock table. With this database, a test can check the data that was written, and
// behavior that is specific to Spanner. (The fake only shows whether a write would be fenced.) New does not work in a
// testing/synctest bubble, because a bubble's time stands still while a goroutine waits for the network.
//
//	func TestTheOtherTakesOver(t *testing.T) {
//		db := spindletest.New(t)
//		a, b := db.Process("a"), db.Process("b")
//		...
//		a.Cut()
//	}
//
// To wait for a loss or a takeover, use [Events]. To wait for a leader, use Lock.Wait. To wait until a Lock is the
// leader, use its WaitElected method. To wait for the loss of a mutex, a set or a permit, use its Lost method. The
// examples in this package are complete tests.
//
// # The emulator
//
// If SPANNER_EMULATOR_HOST is set, New uses that emulator. Otherwise, New starts the first emulator that it finds: the
// program named by SPINDLE_EMULATOR, emulator_main in PATH, the gcloud component cloud-spanner-emulator, or the Docker
// image. New can start an emulator only on Unix systems. All tests of a package share the emulator, which ends when the
// package's test process ends, even if that process is killed.
//
// Tests can run in parallel, because each database has its own instance. Within a database, the emulator runs one
// read-write transaction at a time and aborts all others. Unlike Spanner, the emulator also loses track of some
// transactions if many of them run concurrently on one client. Those transactions fail with "Transaction not found" or
// "Invalid transaction ID". Spindle then retries its own commits, including a lock's Apply and ReadWriteTransaction,
// but transactions that a test runs directly on the client fail. To avoid this, give each concurrent writer its own
// client, or write with spanner.ApplyAtLeastOnce.
//
// The emulator gets slower with each commit to any of its databases. A read takes 0.7 ms at first, and 22 ms after
// 12,000 commits. If reads take 10 ms or more at the end of a test, the test's log says so. If a test makes thousands of
// commits, give it its own emulator with [Private], so that it does not slow down later tests. Restart an emulator that
// has been running for days.
//
// After the cleanups, no goroutine of this package is left. However, the Spanner client may leave two kinds of
// goroutines behind, which tests that use go.uber.org/goleak must ignore. One is a worker of OpenCensus, which starts
// with the process. The other serves an idle connection to a metadata server for a minute. The client asks that server
// for the region once in each process, unless SPANNER_EMULATOR_HOST is set.
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

// setupTimeout is the time limit of New, and must be long enough to pull the emulator's image. cleanupTimeout is the
// time limit of the cleanup after a test.
const (
	setupTimeout   = 6 * time.Minute
	cleanupTimeout = time.Minute
)

// A Database is a new database, with an empty lock table, for one test.
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

// New returns a new database with the lock table. When the test and its subtests have finished, the client is closed,
// and the database is dropped or, with [Private], its emulator is stopped.
//
// The first emulator of a test run takes about half a second to start, or longer if its image has to be pulled. Creating
// a database takes milliseconds. If no emulator is found, the test is not skipped but fails, with an error that explains
// how to install one.
func New(tb testing.TB, opts ...Option) *Database {
	tb.Helper()
	o := config{dialect: databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL}
	for _, opt := range opts {
		opt(&o)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), setupTimeout)
	defer cancel()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	afterwards := func(f func() error) {
		tb.Cleanup(func() {
			if err := f(); err != nil {
				tb.Error(err)
			}
		})
	}

	e, err := o.emulator(ctx)
	must(err)
	d := &Database{Table: lockTable, Host: e.Addr(), tb: tb, emulator: e, private: o.private}
	if d.private {
		afterwards(e.Close)
	}
	d.Path, err = e.CreateDatabase(ctx, o.dialect, append([]string{ddl.Statement(o.dialect, lockTable)}, o.statements...)...)
	must(err)
	if !d.private { // otherwise it is lost with its emulator, which may have ended by then
		afterwards(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
			defer cancel()
			return e.DropDatabase(ctx, d.Path)
		})
	}
	// The test's context would end before the cleanups, which may use the client.
	client, err := e.Connect(context.Background(), d.Path)
	must(err)
	tb.Cleanup(func() {
		if !d.stopped {
			d.tellIfSlow(slowRead)
		}
		client.Close()
	})
	d.Client = client
	return d
}

// ClientOptions returns options for additional Spanner clients in this process. A client with these options connects to
// the emulator, regardless of environment variables.
func (d *Database) ClientOptions() []option.ClientOption {
	return d.emulator.ClientOptions()
}

// Env returns environment variables for a child process. They make the child's Spanner clients connect to the emulator.
func (d *Database) Env() []string {
	return []string{"SPANNER_EMULATOR_HOST=" + d.Host}
}

// StopEmulator kills the emulator, which deletes all its data, and returns once the emulator has exited. If the
// database was not created with [Private], StopEmulator fails the test instead, because other tests may be using the
// emulator.
func (d *Database) StopEmulator(tb testing.TB) {
	tb.Helper()
	if !d.private {
		tb.Fatal("spindletest: this emulator can't be stopped because other tests may use it; create the database with New(t, Private())")
	}
	d.stopped = true
	if err := d.emulator.Close(); err != nil {
		tb.Fatal(err)
	}
}
