package spindletest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A Fake is a lock table in memory, for unit tests. Only the table is simulated. The code for elections, heartbeats,
// handovers, events and probes is the same as in production. The table responds instantly. It uses the machine's clock
// or, in a testing/synctest bubble, the bubble's clock.
//
// A Fake has no database, so Apply and ReadWriteTransaction only check the token, for locks, mutexes, semaphores and
// partitions alike. If the token is no longer valid, their error wraps spindle.ErrFenced. Otherwise, Apply returns a
// time and no error, as if the commit had succeeded, but it applies no mutations. ReadWriteTransaction can't call its
// function, so it returns an error and also fails the test. While the process is cut off, both methods block until
// their ctx ends or Mend is called.
//
// Some things can't be tested with a Fake: ReadWriteTransaction; group.Members, because it needs a Spanner client;
// commits with the mutations of Fence and Run.Done; and behavior that is specific to Spanner. Use [New] for such tests.
type Fake struct {
	tb    testing.TB
	store *memstore.Store

	mu     sync.Mutex
	gates  []*gate
	silent bool // the test has failed because of a transaction, or it has ended
}

// NewFake returns an empty lock table for one test. When the test has finished, NewFake's cleanup reconnects every
// process that is still cut off. In a testing/synctest bubble, the cleanup then sleeps for a minute of virtual time, so
// that everything that uses the test's context can end. If a lock has WithHandover and a lease of more than three
// minutes, it needs longer: end its context, and wait for Run, before the test ends.
//
// The end of a context does not release a mutex, set or permit of package lock. Release each of them before the test
// ends. Otherwise, the bubble reports a deadlock.
func NewFake(tb testing.TB) *Fake {
	tb.Helper()
	f := &Fake{tb: tb, store: &memstore.Store{}}
	tb.Cleanup(func() {
		f.mu.Lock()
		for _, g := range f.gates {
			g.Mend()
		}
		f.mu.Unlock()
		if inBubble() {
			time.Sleep(time.Minute)
		}
		f.mu.Lock()
		f.silent = true // a test that has ended must not be failed
		f.mu.Unlock()
	})
	return f
}

// inBubble reports whether time is virtual. It relies on synctest.Wait, which panics outside a bubble.
func inBubble() (virtual bool) {
	defer func() { virtual = recover() == nil }()
	synctest.Wait()
	return
}

// Process returns a new process on the table. Its locks have the given id, unless their own options set a different
// one. The process has no Client, so pass nil to the constructors of its locks.
func (f *Fake) Process(id string) *Process {
	g := &gate{Link: memstore.Link{Store: f.store}, notRun: f.notRun}
	f.mu.Lock()
	f.gates = append(f.gates, g)
	f.mu.Unlock()
	p := &Process{Table: lockTable, cut: g.Hold, mend: g.Mend}
	requests := &batch.Requests{} // which the locks of one process share
	p.seam = seam(id, func(c *options.Config) { c.Store, c.Requests = g, requests })
	return p
}

// notRun fails the test, because the code under test relies on a transaction that was not run. It does so only once,
// even if the code retries the transaction.
func (f *Fake) notRun(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.silent {
		f.silent = true
		f.tb.Errorf("spindletest: %v", err)
	}
}

// Supersede is like [Database.Supersede], but on the fake.
func (f *Fake) Supersede(name string) (release func()) {
	f.tb.Helper()
	return supersede(f.tb, f.store, name)
}

// SupersedePartition is like [Database.SupersedePartition], but on the fake.
func (f *Fake) SupersedePartition(group, partition string) (release func()) {
	f.tb.Helper()
	return supersedePartition(f.tb, f.store, group, partition)
}

// gate is a process's connection to the table.
type gate struct {
	memstore.Link
	notRun func(error)
}

// NotRun fails the test with the error of a transaction that needs a database. Package fence calls it.
func (g *gate) NotRun(err error) { g.notRun(err) }
