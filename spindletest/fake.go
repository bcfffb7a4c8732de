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

// A Fake is a lock table in memory, for unit tests. Only the table is simulated: elections, heartbeats, handovers,
// events and probes are the real ones. The table responds instantly. Its clock is the machine's or, in a
// testing/synctest bubble, the bubble's.
//
// There is no database. Apply and ReadWriteTransaction of all locks, mutexes, semaphores and partitions only check the
// token. If the token is no longer valid, they return spindle.ErrFenced; otherwise, they return a time and no error, as
// if the commit had succeeded. They apply no mutations and don't call the function given to ReadWriteTransaction. While
// the process is cut off, they block. In addition, group.Members rejects the nil client, the mutations of Fence and
// Run.Done can't be committed, and behavior that is specific to Spanner is not reproduced. Tests that depend on any of
// these must use [New].
type Fake struct {
	tb    testing.TB
	store *memstore.Store

	mu    sync.Mutex
	gates []*gate
}

// NewFake returns an empty table for one test. When the test has finished, every process that is still cut off is
// mended. In a testing/synctest bubble, a minute of the bubble's time then passes, so that everything that stops with
// the test's context has time to end.
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

// inBubble reports whether time is virtual. It relies on synctest.Wait, which panics outside a bubble.
func inBubble() (virtual bool) {
	defer func() { virtual = recover() == nil }()
	synctest.Wait()
	return
}

// Process returns a separate process on the table. The id applies unless the lock's options set a different one. The
// process has no Client, so pass nil to the constructors of its locks.
func (f *Fake) Process(id string) *Process {
	g := &gate{Store: f.store}
	f.mu.Lock()
	f.gates = append(f.gates, g)
	f.mu.Unlock()
	p := &Process{Table: lockTable, cut: g.cut, mend: g.mend}
	p.seam = seam(id, func(c *options.Config) { c.Store = g })
	return p
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

// gate is a process's connection to the table. While it is shut, calls wait for it to open, as calls of a Spanner
// client without a connection do.
type gate struct {
	table.Store

	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open; created by cut, in the caller's bubble
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
