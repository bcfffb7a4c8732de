// Package spindletest helps to test code that uses locks. It provides a lock table in memory for unit tests, and a
// database on the Cloud Spanner emulator for integration tests. With both, a test can simulate several processes of a
// service by creating a [Process] for each of them, cutting a process off, and letting another process supersede it.
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
//				t.Error("the only candidate does not work")
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
// synctest.Wait to let everything that is already due happen first. A test that uses a network can't run in a bubble.
// Such a test uses the fake in real time: give its locks a short lease, of 100 ms or more, and wait for events.
//
// # Integration tests
//
// [New] returns a database with the lock table, in real time. On it, a test can check the data that was written and the
// behavior of Spanner itself, whereas the fake only shows whether a write would be fenced. New does not work in a
// testing/synctest bubble, where time stands still while a goroutine waits for the network.
//
//	func TestTheOtherTakesOver(t *testing.T) {
//		db := spindletest.New(t)
//		a, b := db.Process("a"), db.Process("b")
//		...
//		a.Cut()
//	}
//
// To wait for a loss or a takeover, use [Events]. To wait for the leader, use the methods Wait and WaitElected of
// spindle.Lock. To wait for the loss of a mutex, a set or a permit, use its Lost method. The file worker_test.go in
// this package contains a small service with unit tests and integration tests.
//
// # The emulator
//
// If SPANNER_EMULATOR_HOST is set, the database is on that emulator. Otherwise New starts the first emulator that it
// finds: the path in SPINDLE_EMULATOR, emulator_main in PATH, the gcloud component cloud-spanner-emulator, or the
// Docker image. The tests of one package share this emulator, which ends with their process, even if the process is
// killed. Each package has its own emulator. It takes less than a tenth of a second to start, or seconds with Docker.
//
// Tests can run in parallel, because each database has its own instance. Within a database, the emulator runs one
// read-write transaction at a time and aborts all concurrent ones. If many transactions run concurrently on one client,
// the emulator loses track of some and fails them with "Transaction not found" or "Invalid transaction ID", unlike
// Spanner itself. Spindle retries its own commits in that case, including a lock's Apply and ReadWriteTransaction, but
// transactions that a test runs directly on the client fail. To avoid this, give each concurrent writer its own client,
// or write with spanner.ApplyAtLeastOnce.
//
// The emulator gets slower with each commit, whichever database the commit is in. A read takes 0.7 ms at first, and
// 22 ms after 12,000 commits. If reads take more than 10 ms at the end of a test, the test's log reports it. Give a
// test with thousands of commits its own emulator with [Private], so that it does not slow down later tests, and
// restart an emulator that has been running for days.
//
// After the cleanups, nothing that this package started is left running. The Spanner client may leave two kinds of
// goroutines behind, which tests that use go.uber.org/goleak must ignore. One is a worker that OpenCensus starts with
// the process. The other serves a connection to a metadata server, which stays idle for a minute: unless
// SPANNER_EMULATOR_HOST is set, the client asks that server for the region once in each process.
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

// setupTimeout limits New, and must be long enough to pull the emulator's image. cleanupTimeout limits the cleanup
// after a test.
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

// New returns a new database with the lock table. When the test and its subtests have finished, the client is closed
// and the database is dropped.
//
// The first emulator of a run takes about half a second to start, or longer if its image has to be pulled; creating a
// database takes milliseconds. If no emulator is found, the test is not skipped: it fails with an error that explains
// how to install one.
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
		return // the database is lost with its emulator, which may have ended by then
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
	// The test's context would end before the cleanups, which may use the client.
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

// ClientOptions returns options that connect further clients of this process to the emulator, regardless of environment
// variables.
func (d *Database) ClientOptions() []option.ClientOption {
	return d.emulator.ClientOptions()
}

// Env returns environment variables for a child process. With them, the child's Spanner clients connect to the
// emulator.
func (d *Database) Env() []string {
	return []string{"SPANNER_EMULATOR_HOST=" + d.Host}
}

// StopEmulator kills the emulator with all its data, and returns when it has ended. If the database was not created
// with [Private], StopEmulator fails the test instead, because other tests may be using the emulator.
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
