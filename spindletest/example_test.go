package spindletest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// asTest represents a test function, such as func TestAccounts(t *testing.T).
var asTest = func(func(t *testing.T)) {}

// TestTheExamplesPass runs the code of the examples.
func TestTheExamplesPass(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]func(){
		"New": ExampleNew, "NewFake": ExampleNewFake, "NewFake_probe": ExampleNewFake_probe, "Process.Cut": ExampleProcess_Cut,
		"Fake": ExampleFake, "Fake.Supersede": ExampleFake_Supersede, "Fake.SupersedePartition": ExampleFake_SupersedePartition, "Database.Process": ExampleDatabase_Process, "Events.Await": ExampleEvents_Await,
	} {
		var shown func(*testing.T)
		asTest = func(f func(*testing.T)) { shown = f }
		example()
		t.Run(name, func(t *testing.T) {
			if name == "New" || name == "Database.Process" {
				needEmulator(t)
			}
			t.Parallel()
			shown(t)
		})
	}
}

// A test of code that keeps its own data in the database with the locks.
func ExampleNew() {
	asTest(func(t *testing.T) {
		db := spindletest.New(t, spindletest.WithDDL(
			"CREATE TABLE accounts (id INT64 NOT NULL, balance INT64) PRIMARY KEY (id)",
		))
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{
			spanner.Insert("accounts", []string{"id", "balance"}, []any{1, 100}),
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A unit test in virtual time. When the first of a service's two processes is cut off, the second one takes over.
func ExampleNewFake() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			start := func(p *spindletest.Process) *spindle.Lock {
				l := spindle.New(p.Client, p.Table, "scheduler", p.Option()) // in the constructor of your service
				if err := l.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				return l
			}
			a := fake.Process("a")
			first, second := start(a), start(fake.Process("b"))

			a.Cut()
			time.Sleep(11 * time.Second) // one lease, and a little time for the other process to notice
			if leads, _ := first.HasLock(); leads {
				t.Error("the first leads, and is cut off")
			}
			if leads, _ := second.HasLock(); !leads {
				t.Error("the second does not lead")
			}
		})
	})
}

// A readiness probe that follows the lock.
func ExampleNewFake_probe() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := spindletest.NewFake(t).Process("a")
			l := spindle.New(a.Client, a.Table, "scheduler", a.Option())
			probe := func() int {
				answer := httptest.NewRecorder()
				spindle.Probe(l.Leading).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
				return answer.Code
			}
			if err := l.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if probe() != http.StatusOK {
				t.Error("the leader is not ready")
			}
			a.Cut()
			time.Sleep(10 * time.Second)
			if probe() != http.StatusServiceUnavailable {
				t.Error("ready without the lock")
			}
		})
	})
}

// Work under a mutex that stops when the mutex is lost.
func ExampleProcess_Cut() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := spindletest.NewFake(t).Process("a")
			m := lock.New(a.Client, a.Table, "invoice-4711", a.Option())
			err := lock.Do(t.Context(), m, func(ctx context.Context) error {
				a.Cut()
				<-ctx.Done()
				a.Mend()
				return context.Cause(ctx)
			})
			if !errors.Is(err, lock.ErrLost) {
				t.Error("the work was not told:", err)
			}
		})
	})
}

// A check of whether a write would be fenced. The fake checks the token, and writes nothing.
func ExampleFake() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			a := fake.Process("a")
			m := lock.New(a.Client, a.Table, "accounts", a.Option())
			if err := m.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			save := func() error {
				_, err := m.Apply(t.Context(), []*spanner.Mutation{spanner.Update("accounts", []string{"id", "balance"}, []any{1, 100})})
				return err
			}
			if err := save(); err != nil {
				t.Error("refused while the mutex is held:", err)
			}
			fake.Supersede("accounts")
			if err := save(); !errors.Is(err, spindle.ErrFenced) {
				t.Error("not fenced:", err)
			}
			_ = m.Unlock(t.Context()) // lock.ErrNotHeld
		})
	})
}

// A worker whose partition moves to another process. Its late checkpoint is fenced, and its work is canceled.
func ExampleFake_SupersedePartition() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			a, late := fake.Process("a"), make(chan error, 2)
			g := group.New(a.Client, a.Table, "orders", group.Named("eu"), a.Option(), group.WithWork(func(ctx context.Context, p group.Partition) error {
				<-ctx.Done()
				_, err := p.Apply(context.WithoutCancel(ctx), nil) // a checkpoint
				late <- err
				return context.Cause(ctx)
			}))
			if err := g.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			fake.SupersedePartition("orders", "eu")
			if err := <-late; !errors.Is(err, spindle.ErrFenced) {
				t.Error("not fenced:", err)
			}
		})
	})
}

// A leader that loses the lock to another process stops within a heartbeat interval.
func ExampleFake_Supersede() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			a, stopped := fake.Process("a"), make(chan error, 1)
			l := spindle.New(a.Client, a.Table, "scheduler", a.Option(), spindle.WithHeartbeat(time.Second),
				spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
					<-ctx.Done()
					stopped <- context.Cause(ctx)
				}))
			if err := l.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until it leads

			start := time.Now()
			fake.Supersede("scheduler")
			if why := <-stopped; !errors.Is(why, spindle.ErrSuperseded) {
				t.Error("it has stopped since", why)
			}
			if took := time.Since(start); took > 1100*time.Millisecond {
				t.Error("it has stopped after", took)
			}
		})
	})
}

// An integration test with two candidates on the emulator, one of which is cut off. The test never sleeps.
func ExampleDatabase_Process() {
	asTest(func(t *testing.T) {
		db := spindletest.New(t)
		start := func(p *spindletest.Process) *spindle.Lock {
			l := spindle.New(p.Client, p.Table, "scheduler", p.Option(), spindle.WithLease(time.Second))
			done := make(chan error, 1)
			if err := l.Run(t.Context(), done); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { <-done }) // before its client is closed
			return l
		}
		a := db.Process("a")
		first := start(a)
		if _, err := first.WaitElected(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := start(db.Process("b"))

		a.Cut()
		if _, err := second.WaitElected(t.Context()); err != nil {
			t.Fatal(err)
		}
		if leads, _ := first.HasLock(); leads {
			t.Error("both lead")
		}
		a.Mend()
	})
}

// Waiting for events of the lock. In a bubble, virtual time advances in the meantime; elsewhere, the same code waits in
// real time.
func ExampleEvents_Await() {
	asTest(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, events := spindletest.NewFake(t).Process("a"), spindletest.NewEvents(t)
			l := spindle.New(a.Client, a.Table, "scheduler", a.Option(), events.Option())
			if err := l.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			events.Await(time.Second, spindle.Elected)
			a.Cut()
			events.Await(10*time.Second, spindle.Jeopardy)
			if lost := events.Await(10*time.Second, spindle.Lost); !errors.Is(lost.Err, spindle.ErrExpired) {
				t.Error("the lock was lost since", lost.Err)
			}
			a.Mend()
			events.Await(time.Minute, spindle.Elected)
		})
	})
}
