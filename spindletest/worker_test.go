package spindletest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// worker is an example of a service to test. Exactly one of its processes sends a reminder each second. The only thing
// that a test needs is a constructor that accepts options for the lock.
type worker struct {
	lock *spindle.Lock
	send func(token spindle.Token)
}

func newWorker(db *spanner.Client, table string, send func(spindle.Token), opts ...spindle.Option) *worker {
	w := &worker{send: send}
	w.lock = spindle.New(db, table, "reminders", append(opts, spindle.WithLeader(w.lead))...)
	return w
}

// run works until ctx ends, and returns once the lock has been released.
func (w *worker) run(ctx context.Context) error {
	return w.lock.RunAndWait(ctx)
}

func (w *worker) lead(ctx context.Context, term spindle.Term) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.send(term.Token())
		}
	}
}

func (w *worker) ready() http.Handler { return spindle.Probe(w.lock.Leading) }

// outbox holds the reminders that the workers have sent.
type outbox struct {
	mu   sync.Mutex
	sent []reminder
}

type reminder struct {
	by string
	at time.Time
}

func (o *outbox) of(id string) func(spindle.Token) {
	return func(spindle.Token) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sent = append(o.sent, reminder{id, time.Now()})
	}
}

// by returns the times at which the given worker sent reminders.
func (o *outbox) by(id string) (at []time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.sent {
		if r.by == id {
			at = append(at, r.at)
		}
	}
	return at
}

// start runs a worker in its own process until the test ends. It then waits for the worker, because the worker's client
// is closed next.
func start(t *testing.T, p *spindletest.Process, id string, out *outbox, opts ...spindle.Option) *worker {
	w, done := newWorker(p.Client, p.Table, out.of(id), append(opts, p.Option())...), make(chan error, 1)
	go func() { done <- w.run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// These are unit tests on the fake, in virtual time. Sleeps take no real time, and times are exact. A lease is 10 s.

func TestAWorkerThatIsCutOffStopsBeforeAnotherStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, out := spindletest.NewFake(t), &outbox{}
		a, b := fake.Process("a"), fake.Process("b")
		start(t, a, "a", out)
		synctest.Wait() // until a leads
		start(t, b, "b", out)
		time.Sleep(time.Minute)
		a.Cut()
		time.Sleep(time.Minute)

		first, second := out.by("a"), out.by("b")
		if len(first) == 0 || len(second) == 0 {
			t.Fatalf("a has sent %d reminders, and b %d", len(first), len(second))
		}
		if last := first[len(first)-1]; !last.Before(second[0]) {
			t.Errorf("a has sent until %v, and b since %v", last, second[0])
		}
		if gap := second[0].Sub(first[len(first)-1]); gap > 12*time.Second {
			t.Errorf("nobody has sent for %v", gap)
		}

		a.Mend()
		time.Sleep(time.Minute)
		if len(out.by("a")) > len(first) {
			t.Error("a sends again, and b leads")
		}
	})
}

func TestAWorkerStopsAtItsNextHeartbeatIfAnotherHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, out := spindletest.NewFake(t), &outbox{}
		start(t, fake.Process("a"), "a", out)
		time.Sleep(time.Minute)
		fake.Supersede("reminders")
		superseded := time.Now()
		time.Sleep(9 * time.Second)
		sent := out.by("a")
		if took := sent[len(sent)-1].Sub(superseded); took > 4*time.Second { // a third of the lease, and a reminder
			t.Errorf("a has sent for another %v", took)
		}
		time.Sleep(time.Minute) // the other process sends no heartbeats
		if len(out.by("a")) == len(sent) {
			t.Error("a does not lead again")
		}
	})
}

func TestOnlyTheLeaderIsReady(t *testing.T) {
	ready := func(w *worker) bool {
		answer := httptest.NewRecorder()
		w.ready().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return answer.Code == http.StatusOK
	}
	synctest.Test(t, func(t *testing.T) {
		fake, out := spindletest.NewFake(t), &outbox{}
		a := fake.Process("a")
		w := start(t, a, "a", out)
		synctest.Wait()
		if !ready(w) {
			t.Error("the leader is not ready")
		}
		a.Cut()
		time.Sleep(10 * time.Second)
		if ready(w) {
			t.Error("ready, and cut off for a lease")
		}
		a.Mend()
		time.Sleep(20 * time.Second)
		if !ready(w) {
			t.Error("not ready, though nothing is wrong any more")
		}
	})
}

// In a rolling update, the next worker begins when the last one has stopped, with almost no time in between.
func TestAWorkerThatStopsHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, out := spindletest.NewFake(t), &outbox{}
		a, b := fake.Process("a"), fake.Process("b")
		old := newWorker(a.Client, a.Table, out.of("a"), a.Option(), spindle.WithHandover())
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- old.run(ctx) }()
		synctest.Wait()
		start(t, b, "b", out, spindle.WithHandover())
		time.Sleep(time.Minute)
		stop()
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		first, second := out.by("a"), out.by("b")
		if gap := second[0].Sub(first[len(first)-1]); gap > 3*time.Second {
			t.Errorf("nobody has sent for %v", gap)
		}
	})
}

// This is an integration test on the emulator, in real time. It uses a short lease, and waits for events.
func TestTheOtherWorkerTakesOverOnSpanner(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	db, out := spindletest.New(t), &outbox{}
	a, b := db.Process("a"), db.Process("b")
	ofA, ofB := spindletest.NewEvents(t), spindletest.NewEvents(t)
	short := spindle.WithLease(3 * time.Second)
	start(t, a, "a", out, ofA.Option(), short)
	ofA.Await(10*time.Second, spindle.Elected)
	start(t, b, "b", out, ofB.Option(), short)
	ofB.Await(10*time.Second, spindle.LeaderSeen)

	a.Cut()
	if lost := ofA.Await(10*time.Second, spindle.Lost); !errors.Is(lost.Err, spindle.ErrExpired) {
		t.Errorf("a has lost the lock, since %v", lost.Err)
	}
	ofB.Await(10*time.Second, spindle.Elected)
	a.Mend()
	if seen := ofA.Await(10*time.Second, spindle.LeaderSeen); seen.Leader.ID != "b" {
		t.Errorf("a sees that %s leads", seen.Leader.ID)
	}
}

// The leader's writes are fenced in the database itself, which a fake can't show.
func TestALeaderThatWasSupersededWritesNothing(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	db := spindletest.New(t, spindletest.WithDDL("CREATE TABLE reminders (id INT64) PRIMARY KEY (id)"))
	a := db.Process("a")
	lock := spindle.New(a.Client, a.Table, "reminders", a.Option())
	done := make(chan error, 1)
	if err := lock.Run(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-done })
	token, err := lock.WaitElected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db.Supersede("reminders") // the leader does not know this yet
	_, err = lock.Apply(t.Context(), token, []*spanner.Mutation{spanner.Insert("reminders", []string{"id"}, []any{1})})
	if !errors.Is(err, spindle.ErrFenced) {
		t.Errorf("a late write is not fenced: %v", err)
	}
}
