package spindletest_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// run runs a lock until the test ends.
func run(t *testing.T, p *spindletest.Process, opts ...spindle.Option) *spindle.Lock {
	t.Helper()
	l := spindle.New(p.Client, p.Table, "job", append(opts, p.Option())...)
	done := make(chan error, 1)
	require.NoError(t, l.Run(t.Context(), done))
	if p.Client != nil { // which is closed next
		t.Cleanup(func() { <-done })
	}
	return l
}

func has(l *spindle.Lock) bool { ok, _ := l.HasLock(); return ok }

func TestProcessesOfAFakeCompeteForItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := spindletest.NewFake(t)
		a := run(t, fake.Process("a"), spindle.WithValue("10.0.0.1"))
		synctest.Wait()
		require.True(t, has(a))
		b := run(t, fake.Process("b"))
		synctest.Wait()
		require.False(t, has(b))
		leader, err := b.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "a", leader.ID)
		assert.Equal(t, "10.0.0.1", leader.Value)
		require.NoError(t, a.StepDown(t.Context()))
		_, err = b.WaitElected(t.Context())
		require.NoError(t, err)

		elsewhere := run(t, spindletest.NewFake(t).Process("c"))
		synctest.Wait()
		require.True(t, has(elsewhere), "two fakes are two tables")
	})
}

// The locks of a process on a fake can share their requests, although the process has no client. Two processes share none.
func TestLocksOnAFakeShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := spindletest.NewFake(t)
		p := fake.Process("a")
		l := run(t, p, spindle.WithSharedRequests())
		synctest.Wait()
		require.True(t, has(l))
		requests := func(p *spindletest.Process) *batch.Requests {
			return options.New([]spindle.LockOption{p.Option()}).Requests
		}
		assert.Same(t, requests(p), requests(p))
		assert.NotSame(t, requests(p), requests(fake.Process("b")))
	})
}

func TestAnIdOfTheLocksOwnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := spindletest.NewFake(t).Process("a")
		l := run(t, p, spindle.WithID("own"))
		leader, err := l.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "own", leader.ID)
	})
}

// A cut ends a term as an outage does: by the local clock, at the deadline. Calls wait, and go through when it is mended.
func TestACutIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, events := spindletest.NewFake(t), spindletest.NewEvents(t)
		p := fake.Process("a")
		l := run(t, p, events.Option())
		elected := events.Await(time.Second, spindle.Elected)
		p.Cut()
		lost := events.Await(10*time.Second, spindle.Lost)
		assert.ErrorIs(t, lost.Err, spindle.ErrExpired)
		assert.WithinDuration(t, elected.Deadline, lost.At, 10*time.Millisecond)
		time.Sleep(time.Minute)
		require.ErrorContains(t, l.Health(), "the test has cut this process off")

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Leader(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		asked := make(chan error, 1)
		go func() { _, err := l.Leader(t.Context()); asked <- err }()
		synctest.Wait()
		require.Empty(t, asked)
		p.Cut() // once more, which changes nothing
		p.Mend()
		p.Mend()
		if err := <-asked; err != nil { // or the lock itself was first
			require.ErrorIs(t, err, spindle.ErrNoLeader)
		}
		events.Await(10*time.Second, spindle.Elected)
	})
}

// supersede is what holds on the fake and on Spanner.
func supersede(t *testing.T, p *spindletest.Process, supersede func(string) func(), lease time.Duration) {
	events := spindletest.NewEvents(t)
	often := lease / 50
	run(t, p, events.Option(), spindle.WithLease(lease), spindle.WithHeartbeat(often), spindle.WithPoll(often))
	events.Await(3*time.Minute, spindle.Elected)
	release := supersede("job")
	lost := events.Await(3*time.Minute, spindle.Lost)
	assert.ErrorIs(t, lost.Err, spindle.ErrSuperseded)
	leader := events.Await(3*time.Minute, spindle.LeaderSeen).Leader
	assert.Equal(t, "another process", leader.ID)
	assert.Equal(t, lease, leader.Lease)
	assert.Greater(t, leader.Token, lost.Token)
	release()
	release()
	events.Await(3*time.Minute, spindle.Elected)
}

func TestSupersedeOnAFake(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Minute} { // shorter and longer than the default
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			supersede(t, fake.Process("a"), fake.Supersede, lease)
		})
	}
}

// Who supersedes and is not heard from again has the lock for one lease.
func TestWhoSupersedesIsGoneAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := spindletest.NewFake(t)
		l := run(t, fake.Process("a"))
		synctest.Wait()
		release := fake.Supersede("job")
		time.Sleep(9 * time.Second)
		require.False(t, has(l))
		time.Sleep(2 * time.Second)
		require.True(t, has(l))
		release()
		time.Sleep(10 * time.Second)
		require.True(t, has(l), "a late release is another's business")

		fake.Supersede("a lock that nobody has")
		fresh := spindle.New(nil, "locktable", "a lock that nobody has", fake.Process("b").Option())
		leader, err := fresh.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, leader.Lease)
	})
}

// Two processes of a test are two, though they are in one: a mutex that is cut off keeps no other process waiting for
// longer than its lease.
func TestMutexesOfTwoProcessesDontQueueForOneAnother(t *testing.T) {
	t.Parallel()
	between := func(t *testing.T, a, b *spindletest.Process, lease time.Duration) {
		m, n := lock.New(a.Client, a.Table, "m", a.Option(), spindle.WithLease(lease)), lock.New(b.Client, b.Table, "m", b.Option())
		require.NoError(t, m.Lock(t.Context()))
		a.Cut()
		require.NoError(t, n.Lock(t.Context()))
		<-m.Lost()
		a.Mend()
		require.ErrorIs(t, m.Unlock(t.Context()), lock.ErrNotHeld)
		require.NoError(t, n.Unlock(t.Context()))
	}
	t.Run("fake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := spindletest.NewFake(t)
			between(t, fake.Process("a"), fake.Process("b"), 10*time.Second)
		})
	})
	t.Run("Spanner", func(t *testing.T) {
		needEmulator(t)
		t.Parallel()
		db := spindletest.New(t)
		between(t, db.Process("a"), db.Process("b"), time.Second)
	})
}

// All locks of one Process are in one process, whose goroutines queue for a mutex among themselves. Those of two Processes are in two, even
// if they have the same id.
func TestEachProcessOfATestIsOneProcess(t *testing.T) {
	fake := spindletest.NewFake(t)
	seen := map[string]int{}
	for range 2 {
		p := fake.Process("a")
		for range 3 {
			var config options.Config
			p.Option().(options.Option)(&config)
			assert.Equal(t, "a", config.ID)
			seen[config.Process]++
		}
	}
	assert.Equal(t, []int{3, 3}, slices.Collect(maps.Values(seen)))
	assert.NotContains(t, seen, "")
}

// On a fake, what writes under a token is answered by the token alone, whatever holds the lock. Nothing else is run, and a
// write that is fenced says so. A transaction that would not be fenced fails, and fails the test: what it was meant to do
// was not done.
func TestWritesOnAFakeAreFencedOrNotByTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &spindletest.Failing{TB: t}
		fake := spindletest.NewFake(tb)
		p := fake.Process("a")
		l := run(t, p)
		token, err := l.WaitElected(t.Context())
		require.NoError(t, err)
		m := lock.New(nil, p.Table, "m", p.Option())
		require.NoError(t, m.Lock(t.Context()))
		set := lock.All(nil, p.Table, []string{"x", "y"}, p.Option())
		require.NoError(t, set.Lock(t.Context()))
		permit, err := lock.NewSemaphore(nil, p.Table, "s", 1, p.Option()).Acquire(t.Context())
		require.NoError(t, err)
		g := group.New(nil, p.Table, "orders", group.Numbered(1), p.Option())
		require.NoError(t, g.Run(t.Context()))
		time.Sleep(time.Minute)
		partition := g.Held()[0]

		type writer interface {
			Apply(context.Context, []*spanner.Mutation, ...spanner.ApplyOption) (time.Time, error)
			ReadWriteTransaction(context.Context, func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error)
		}
		writers := map[string]writer{"job": elected{l, token}, "m": m, "y": set, "s/slot/0000": permit, "orders": partition}
		never := func(context.Context, *spanner.ReadWriteTransaction) error { t.Error("called"); return nil }
		both := func(ctx context.Context, w writer) [2]error {
			_, apply := w.Apply(ctx, []*spanner.Mutation{spanner.Delete("no such table", spanner.AllKeys())}, spanner.ApplyAtLeastOnce())
			_, transaction := w.ReadWriteTransaction(ctx, never)
			return [2]error{apply, transaction}
		}
		for name, w := range writers {
			result := both(t.Context(), w)
			assert.NoError(t, result[0], name)
			assert.ErrorContains(t, result[1], "spindletest.New", name)
			assert.NotErrorIs(t, result[1], spindle.ErrFenced)
		}
		require.Len(t, tb.Errors, 1, "one failure is enough")
		assert.Contains(t, tb.Errors[0], "spindletest.New")

		p.Cut()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range both(short, writers["job"]) {
			assert.ErrorIs(t, err, context.DeadlineExceeded, "as a Spanner client without a connection")
			assert.NotErrorIs(t, err, spindle.ErrFenced)
		}
		p.Mend()

		for name, w := range writers {
			if name == "orders" {
				fake.SupersedePartition("orders", partition.Name())
			} else {
				fake.Supersede(name)
			}
			for _, err := range both(t.Context(), w) {
				assert.ErrorIs(t, err, spindle.ErrFenced, name)
				if !strings.Contains(err.Error(), "token 0:") { // it knows of its loss by now: nobody was asked
					assert.ErrorContains(t, err, "only the token was checked", name)
				}
			}
		}
		_, err = l.Apply(t.Context(), 0, nil)
		require.ErrorIs(t, err, spindle.ErrFenced, "no token is no token anywhere")
		_ = m.Unlock(t.Context())
		_ = set.Unlock(t.Context())
		_ = permit.Release(t.Context())
		assert.Len(t, tb.Errors, 1, "a fenced transaction is what the test may be about")
	})
}

// A test that has ended can't be failed: testing.T panics then.
func TestATransactionAfterTheTestFailsNoTest(t *testing.T) {
	var p *spindletest.Process
	tb := &spindletest.Failing{TB: t}
	t.Run("a test", func(t *testing.T) {
		tb.TB = t
		p = spindletest.NewFake(tb).Process("a")
	})
	m := lock.New(nil, p.Table, "m", p.Option())
	require.NoError(t, m.Lock(t.Context()))
	_, err := m.ReadWriteTransaction(t.Context(), nil)
	assert.ErrorContains(t, err, "spindletest.New")
	assert.Empty(t, tb.Errors)
	require.NoError(t, m.Unlock(t.Context()))
}

// elected is a lock that writes under one token.
type elected struct {
	*spindle.Lock
	token spindle.Token
}

func (e elected) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return e.Lock.Apply(ctx, e.token, ms, opts...)
}

func (e elected) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return e.Lock.ReadWriteTransaction(ctx, e.token, fn)
}

// supersedePartition is what holds on the fake and on Spanner.
func supersedePartition(t *testing.T, p *spindletest.Process, supersede func(group, partition string) func(), lease time.Duration) {
	begun, ended, other := make(chan group.Partition, 10), make(chan error, 10), make(chan struct{}, 10)
	g := group.New(p.Client, p.Table, "orders", group.Named("a/b", "c"), p.Option(), spindle.WithLease(lease), group.WithWork(func(ctx context.Context, p group.Partition) error {
		if p.Name() == "a/b" {
			begun <- p
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}
		other <- struct{}{}
		<-ctx.Done()
		return nil
	}))
	done := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	require.NoError(t, g.Run(ctx, done))
	t.Cleanup(func() { leave(); <-done })
	first := <-begun
	<-other
	release := supersede("orders", "a/b")
	start := time.Now()
	_, err := first.Apply(t.Context(), nil)
	assert.ErrorIs(t, err, spindle.ErrFenced)
	assert.ErrorIs(t, <-ended, spindle.ErrSuperseded)
	assert.Less(t, time.Since(start), lease)
	assert.Len(t, g.Held(), 1, "the other partition goes on")
	release()
	again := <-begun
	assert.Less(t, time.Since(start), lease, "it was released before its lease was over")
	assert.Greater(t, again.Token(), first.Token())
	release()
	_, err = again.Apply(t.Context(), nil)
	assert.NoError(t, err, "a late release does nothing")

	start = time.Now()
	supersede("orders", "a/b")
	<-ended
	<-begun
	assert.GreaterOrEqual(t, time.Since(start), lease-lease/10, "it is not heard from again")
}

func TestSupersedePartitionOnAFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := spindletest.NewFake(t)
		supersedePartition(t, fake.Process("a"), fake.SupersedePartition, time.Minute)

		fake.SupersedePartition("a group that nobody is in", "a")
		_, err := group.Members(t.Context(), nil, "locktable", "orders")
		require.ErrorContains(t, err, "the Spanner client is nil")
		for says, args := range map[string][2]string{"has no name": {"orders", ""}, "lock name is empty": {"", "a"}} {
			assert.Contains(t, spindletest.Failure(t, func(tb testing.TB) { spindletest.NewFake(tb).SupersedePartition(args[0], args[1]) }), says)
		}
	})
}

func TestSupersedePartitionOnSpanner(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	for name, opts := range map[string][]spindletest.Option{"GoogleSQL": nil, "PostgreSQL": {spindletest.PostgreSQL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := spindletest.New(t, opts...)
			supersedePartition(t, db.Process("a"), db.SupersedePartition, 12*time.Second)
		})
	}
}

// What is cut off, or hands over, when the test ends has the time to end: else the bubble would complain.
func TestWhatRunsAtTheEndOfATestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := spindletest.NewFake(t)
		a, b := fake.Process("a"), fake.Process("b")
		run(t, a, spindle.WithHandover())
		time.Sleep(time.Minute)
		run(t, b)
		synctest.Wait()
		b.Cut()
		a.Cut()
		asks := spindle.New(nil, b.Table, "job", b.Option())
		go func() { _, _ = asks.Leader(context.Background()) }()
	})
}

// When Await returns, the observer of the code under test has returned, even if it is slow: a test that then checks what
// the observer has done does not fail at random.
func TestEventsKeepAnObserverThatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []spindle.Event
		events := spindletest.NewEvents(t)
		observe := func(e spindle.Event) {
			time.Sleep(time.Second)
			seen = append(seen, e)
		}
		run(t, spindletest.NewFake(t).Process("a"), spindle.WithObserver(observe), events.Option())
		elected := events.Await(time.Minute, spindle.Elected)
		require.NotEmpty(t, seen)
		assert.Equal(t, elected, seen[len(seen)-1])
	})
}

func TestAwaitFailsTheTestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		said := spindletest.Failure(t, func(tb testing.TB) {
			events := spindletest.NewEvents(tb)
			run(t, spindletest.NewFake(t).Process("a"), events.Option())
			events.Await(time.Second, spindle.Elected)
			events.Await(time.Minute, spindle.Elected) // there was one, and it was awaited
		})
		assert.Equal(t, time.Minute, time.Since(start))
		assert.Equal(t, `spindletest: no new event "elected" within 1m0s; all events so far: elected`, said)

		said = spindletest.Failure(t, func(tb testing.TB) { spindletest.NewEvents(tb).Await(time.Second, spindle.Lost) })
		assert.Contains(t, said, "all events so far: none")

		start = time.Now()
		said = spindletest.Failure(t, func(tb testing.TB) { // other events don't begin the time anew
			events, config := spindletest.NewEvents(tb), options.Config{}
			events.Option().(options.Option)(&config)
			go func() {
				for range 9 {
					time.Sleep(time.Second)
					config.Observe(elect.Event{Kind: int(spindle.Safe)})
				}
			}()
			events.Await(9*time.Second/2, spindle.Lost)
		})
		assert.Equal(t, 9*time.Second/2, time.Since(start))
		assert.Equal(t, `spindletest: no new event "lost" within 4.5s; all events so far: safe, safe, safe, safe`, said)
		time.Sleep(time.Minute)
	})
}

func TestSupersedeFailsTheTestIfItCant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Contains(t, spindletest.Failure(t, func(tb testing.TB) { spindletest.NewFake(tb).Supersede("") }), "lock name is empty")
		said := spindletest.Failure(t, func(tb testing.TB) {
			fake := spindletest.NewFake(tb)
			p := fake.Process("a")
			g := group.New(nil, p.Table, "orders", group.Numbered(1), p.Option())
			require.NoError(t, g.Run(t.Context()))
			time.Sleep(time.Minute)
			fake.Supersede("orders/member/0000")
		})
		assert.Contains(t, said, `lock "orders/member/0000" belongs to a group`)
	})
}

func TestSupersedeOnSpanner(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	for name, opts := range map[string][]spindletest.Option{"GoogleSQL": nil, "PostgreSQL": {spindletest.PostgreSQL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := spindletest.New(t, opts...)
			supersede(t, db.Process("a"), db.Supersede, 20*time.Second)
		})
	}
}
