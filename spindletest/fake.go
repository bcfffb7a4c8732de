package spindletest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A Fake is a lock table in memory, for unit tests. The locks on it are the real ones in everything they do: elections,
// heartbeats, handovers, events, probes. Only the table is not Spanner's. It answers at once, and its clock is the
// machine's: in a bubble of testing/synctest, the bubble's.
//
// There is no database. Apply and ReadWriteTransaction, of every lock, mutex, semaphore and partition, only check the
// token: they return spindle.ErrFenced if it is not valid any more, and otherwise a time and no error, as if the commit
// had succeeded. No mutation is applied, and the function of ReadWriteTransaction is not called. They wait while the
// process is cut off. group.Members refuses the nil client, the mutations of Fence and Run.Done can't be committed, and
// nothing behaves as only Spanner does. A test that needs any of these needs [New].
type Fake struct {
	tb    testing.TB
	store *memstore.Store

	mu    sync.Mutex
	gates []*gate
}

// NewFake returns an empty table for one test. When the test is over, NewFake mends every process. In a bubble of
// testing/synctest it then lets a minute of the bubble's time pass, so that what the end of the test's context stops
// can end.
func NewFake(tb testing.TB) *Fake {
	tb.Helper()
	f := &Fake{tb: tb, store: &memstore.Store{}}
	tb.Cleanup(func() {
		f.mu.Lock()
		for _, g := range f.gates {
			g.mend()
		}
		f.mu.Unlock()
		if inBubble() {
			time.Sleep(time.Minute)
		}
	})
	return f
}

// inBubble reports whether time is virtual. Wait panics elsewhere.
func inBubble() (virtual bool) {
	defer func() { virtual = recover() == nil }()
	synctest.Wait()
	return
}

// Process returns a separate process on the table, with the id unless the lock's options have another. It has no
// Client: give the constructors of locks nil.
func (f *Fake) Process(id string) *Process {
	g := &gate{Store: f.store}
	f.mu.Lock()
	f.gates = append(f.gates, g)
	f.mu.Unlock()
	p := &Process{Table: lockTable, cut: g.cut, mend: g.mend}
	p.seam = seam(id, func(c *options.Config) { c.Store = g })
	return p
}

// Supersede is [Database.Supersede] on the fake.
func (f *Fake) Supersede(name string) (release func()) {
	f.tb.Helper()
	return supersede(f.tb, f.store, name)
}

// SupersedePartition is [Database.SupersedePartition] on the fake.
func (f *Fake) SupersedePartition(group, partition string) (release func()) {
	f.tb.Helper()
	return supersedePartition(f.tb, f.store, group, partition)
}

// gate is a process's way to the table. While it is shut, calls wait for it to open, like calls of a Spanner client
// without a connection.
type gate struct {
	table.Store

	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil: it is open. Cut makes it, in its own bubble.
}

func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
			return fmt.Errorf("the test has cut this process off: %w", ctx.Err())
		}
	}
	return call(ctx, g.Store)
}

// Read implements table.Store.
func (g *gate) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	return table.Via(g.pass).Read(ctx, step, bound, keys)
}

// Commit implements table.Store.
func (g *gate) Commit(ctx context.Context, step string, writes []table.Write) error {
	return table.Via(g.pass).Commit(ctx, step, writes)
}

// Transact implements table.Store.
func (g *gate) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return table.Via(g.pass).Transact(ctx, step, fn)
}
