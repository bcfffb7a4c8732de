package batch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// counted is a store in memory that counts requests, and may make each of them slow or fail.
type counted struct {
	memstore.Store
	mu      sync.Mutex
	commits int
	reads   int
	slow    time.Duration
	fail    error
	keys    []table.Keys // of each read
}

func (c *counted) note(n *int) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
	return c.slow, c.fail
}

func (c *counted) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step == "heartbeat" {
		slow, fail := c.note(&c.commits)
		if wait(ctx, slow); fail != nil {
			return fail
		}
	}
	return c.Store.Commit(ctx, step, writes)
}

func (c *counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	slow, fail := c.note(&c.reads)
	c.mu.Lock()
	c.keys = append(c.keys, keys)
	c.mu.Unlock()
	if wait(ctx, slow); fail != nil {
		return nil, time.Time{}, fail
	}
	rows, at, err := c.Store.Read(ctx, step, bound, keys)
	slices.Reverse(rows) // Spanner promises no order
	return rows, at, err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

const lease = 2 * time.Second

// holders claims n locks, and returns their tokens by name.
func holders(t *testing.T, c *counted, n int) map[string]table.Token {
	direct, tokens := table.Table{Store: &c.Store}, map[string]table.Token{}
	for i := range n {
		name := fmt.Sprintf("lock-%04d", i)
		tokens[name] = hold(t, direct, name)
	}
	return tokens
}

func hold(t *testing.T, tab table.Table, name string) table.Token {
	seen, err := tab.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), "me", seen...)
	require.NoError(t, err)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease, ID: "me"}, name))
	return token
}

// beats sends a heartbeat for each of the locks, all at one instant, and returns the errors.
func beats(ctx context.Context, r *batch.Requests, c table.Store, tokens map[string]table.Token) map[string]error {
	var mu sync.Mutex
	errs := map[string]error{}
	var all sync.WaitGroup
	for name, token := range tokens {
		all.Go(func() {
			err := table.Table{Store: r.Store(c, lease)}.Heartbeat(ctx, token, name)
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	return errs
}

// Heartbeats of one instant go into one commit for up to 500 locks, and each extends its own lease.
func TestHeartbeatsShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		tokens := holders(t, &c, 700)
		time.Sleep(time.Second)
		sent := time.Now()
		for name, err := range beats(t.Context(), &batch.Requests{}, &c, tokens) {
			require.NoError(t, err, name)
		}
		assert.Equal(t, 2, c.commits)
		for name := range tokens {
			assert.False(t, c.Rows()[name].Heartbeat.Before(sent.UTC().Truncate(time.Microsecond)), name)
		}
	})
}

// A lock that was superseded learns it, and the others' leases are extended all the same.
func TestOneSupersededLockAmongManyStopsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		tokens := holders(t, &c, 500)
		require.NoError(t, table.Table{Store: &c.Store}.Release(t.Context(), tokens["lock-0123"], "lock-0123"))
		for name, err := range beats(t.Context(), &batch.Requests{}, &c, tokens) {
			if name == "lock-0123" {
				require.ErrorIs(t, err, table.ErrSuperseded)
				continue
			}
			require.NoError(t, err, name)
		}
		assert.LessOrEqual(t, c.commits, 1+2*9, "the superseded lock is found by halves")
	})
}

// unnamed is a store that does not say which row of a commit is missing.
type unnamed struct{ *counted }

func (u unnamed) Commit(ctx context.Context, step string, writes []table.Write) error {
	err := u.counted.Commit(ctx, step, writes)
	if errors.Is(err, table.ErrMissing) {
		return table.ErrNotFound
	}
	return err
}

// Superseded locks in a shared commit stop only themselves, however many they are, wherever they are, and whether or not
// Spanner says that a row is missing. Otherwise, one of them would cost the others their leases.
func TestSupersededLocksAmongManyStopOnlyThemselves(t *testing.T) {
	const n = 6
	for lost := range 1 << n {
		for _, named := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var c counted
				tokens := holders(t, &c, n)
				want := map[string]bool{}
				for i := range n {
					name := fmt.Sprintf("lock-%04d", i)
					if want[name] = lost>>i&1 == 0; !want[name] {
						require.NoError(t, table.Table{Store: &c.Store}.Release(t.Context(), tokens[name], name))
					}
				}
				var store table.Store = &c
				if !named {
					store = unnamed{&c}
				}
				time.Sleep(time.Second)
				sent := time.Now()
				for name, err := range beats(t.Context(), &batch.Requests{}, store, tokens) {
					assert.Equal(t, want[name], err == nil, "%s of %06b: %v", name, lost, err)
					assert.Equal(t, !want[name], errors.Is(err, table.ErrSuperseded), "%s of %06b: %v", name, lost, err)
				}
				for name, beats := range want {
					row := c.Rows()[name]
					assert.Equal(t, beats, !row.Heartbeat.Before(sent), "%s of %06b", name, lost)
				}
			})
		}
	}
}

// Requests are shared among the locks of one client and table.
func TestEachTableOfAClientHasItsOwnRequests(t *testing.T) {
	one, other := &spanner.Client{}, &spanner.Client{}
	r := batch.Of(one, "Locks")
	assert.Same(t, r, batch.Of(one, "locks"))
	assert.NotSame(t, r, batch.Of(one, "others"))
	assert.NotSame(t, r, batch.Of(other, "Locks"))
	assert.Same(t, r, batch.Of(one, "Locks"))
	runtime.KeepAlive(one)
	runtime.KeepAlive(other)
}

// After an attempt that was not acknowledged, heartbeats share commits of half the size, and not with those of other locks
// that have not failed.
func TestHeartbeatsThatFailedShareSmallerCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		tokens := holders(t, &c, 500)
		for attempt, commits := range []int{1, 2, 4, 9} {
			c.commits = 0
			for name, err := range beats(table.Apart(t.Context(), attempt), &batch.Requests{}, &c, tokens) {
				require.NoError(t, err, name)
			}
			assert.Equal(t, commits, c.commits, "attempt %d", attempt)
		}
		var r batch.Requests
		c.commits = 0
		var all sync.WaitGroup
		all.Go(func() { beats(t.Context(), &r, &c, map[string]table.Token{"lock-0000": tokens["lock-0000"]}) })
		all.Go(func() {
			beats(table.Apart(t.Context(), 1), &r, &c, map[string]table.Token{"lock-0001": tokens["lock-0001"]})
		})
		all.Wait()
		assert.Equal(t, 2, c.commits)
	})
}

// claiming returns a candidate whose claims share a gate with heartbeats. If bounded is true, transactions have aborted each other, so
// that the gate has a limit.
func claiming(t *testing.T, r *batch.Requests, link *memstore.Link, bounded bool) *elect.Candidate {
	c := &elect.Candidate{Table: table.Table{Store: link}, Clock: elect.SystemClock{}, Names: []string{"other"}, ID: "me",
		LeaseRecord: table.LeaseRecord{Lease: lease}, Gate: elect.Entrance{Gate: &r.Claims}}
	link.Refuse(func(step string) error {
		if step == "claim" {
			return table.ErrAborted
		}
		return nil
	})
	for bounded && !r.Claims.Bounded() {
		require.True(t, c.Try(t.Context(), elect.All, 0).Lost)
	}
	link.Refuse(nil)
	return c
}

// Heartbeats at different attempts wait together, but each attempt has its own commits. Those are sent side by side, unless
// transactions abort each other: then one after the other, and no claim is sent meanwhile.
func TestWhereTransactionsAbortEachOtherCommitsAreSentInTurn(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, r := counted{slow: lease / 4}, &batch.Requests{}
			tokens := holders(t, &c, 500)
			link := &memstore.Link{Store: &c}
			candidate := claiming(t, r, link, bounded)
			start := time.Now()
			var all sync.WaitGroup
			i := 0
			for name, token := range tokens {
				ctx := table.Apart(t.Context(), i%2)
				all.Go(func() { beats(ctx, r, &c, map[string]table.Token{name: token}) })
				i++
			}
			var claimed time.Duration
			link.Refuse(func(step string) error {
				if step == "claim" {
					claimed = time.Since(start)
				}
				return nil
			})
			time.Sleep(lease / 40)
			var step elect.Step
			var claim sync.WaitGroup
			claim.Go(func() { step = candidate.Try(t.Context(), elect.All, 0) })
			all.Wait()
			assert.Equal(t, 2, c.commits)
			assert.Equal(t, bounded, time.Since(start) > lease/2)
			claim.Wait()
			require.NotNil(t, step.Term, "%v", step.Err)
			assert.Equal(t, bounded, claimed > lease/2)
			step.Term.End(nil)
		})
	}
}

// Claims wait for heartbeats only while these are in progress, whatever becomes of them. Otherwise, a process whose heartbeat has failed
// would never claim anything again.
func TestAClaimGoesOnAfterEachHeartbeat(t *testing.T) {
	for _, outcome := range []error{nil, table.ErrAborted, table.ErrMissing, context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			c, r := counted{}, &batch.Requests{}
			tokens := holders(t, &c, 3)
			candidate := claiming(t, r, &memstore.Link{Store: &c}, true)
			ctx, cancel := context.WithTimeout(t.Context(), lease/4)
			defer cancel()
			if c.fail = outcome; outcome == context.DeadlineExceeded {
				c.fail, c.slow = nil, time.Hour
			}
			for name, err := range beats(ctx, r, &c, tokens) {
				assert.Equal(t, outcome == nil, err == nil, name)
			}
			synctest.Wait()
			c.fail, c.slow = nil, 0
			began := time.Now()
			step := candidate.Try(t.Context(), elect.All, 0)
			require.NotNil(t, step.Term, "%v: %v", outcome, step.Err)
			assert.Less(t, time.Since(began), lease/4, "%v", outcome)
			step.Term.End(nil)
		})
	}
}

// pace sends heartbeats of a lock each, one soon after the other.
type pace struct {
	*testing.T
	counted
	requests batch.Requests
	tokens   map[string]table.Token
	all      sync.WaitGroup
}

func inPace(t *testing.T, f func(*pace)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{T: t}
		p.tokens = holders(t, &p.counted, 3)
		f(p)
	})
}

// send sends the heartbeat of a lock, and returns its result.
func (p *pace) send(ctx context.Context, name string, lease time.Duration) error {
	return table.Table{Store: p.requests.Store(&p.counted, lease)}.Heartbeat(ctx, p.tokens[name], name)
}

// beat sends the heartbeat of a lock, and does not wait for its result. From then on, each commit takes as long as given.
func (p *pace) beat(i int, lease, slow time.Duration) {
	p.all.Go(func() { assert.NoError(p, p.send(p.Context(), fmt.Sprintf("lock-%04d", i), lease)) })
	time.Sleep(5 * time.Millisecond)
	p.after(0, func() { p.slow = slow })
}

// after lets time pass, and then looks at the commits.
func (p *pace) after(d time.Duration, look func()) {
	time.Sleep(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	look()
}

// While another heartbeat is in progress, one with a short lease waits for a part of its own lease only, even if one with a
// long lease waits already. The two are sent together. After that, a heartbeat no longer waits for an answer.
func TestAHeartbeatWaitsForItsOwnWindowAtMost(t *testing.T) {
	for _, leases := range [][]time.Duration{{100 * lease, lease}, {lease, 100 * lease}} {
		inPace(t, func(p *pace) {
			p.slow = lease / 2
			p.beat(0, lease, lease/2)
			for i, of := range leases {
				p.beat(i+1, of, lease/2)
			}
			p.after(lease/50, func() { assert.Equal(t, 2, p.commits, "%v", leases) })
			p.all.Wait()
			p.beat(0, lease, 0)
			p.after(0, func() { assert.Equal(t, 3, p.commits, "%v", leases) })
			p.all.Wait()
		})
	}
}

// A heartbeat waits at most a fiftieth of its lease for those in progress, or a tenth if transactions abort each other, because its
// commit would then abort theirs.
func TestHowLongAHeartbeatWaitsForThoseInProgress(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		inPace(t, func(p *pace) {
			claiming(p.T, &p.requests, &memstore.Link{Store: &p.counted}, bounded)
			limit := lease / 50
			if bounded {
				limit = lease / 10
			}
			p.slow = lease / 2
			p.beat(0, lease, lease/2)
			p.beat(1, lease, lease/2)
			p.after(limit-6*time.Millisecond, func() { assert.Equal(t, 1, p.commits) })
			p.after(time.Millisecond, func() { assert.Equal(t, 2, p.commits) })
			p.all.Wait()
		})
	}
}

// The answer to one of two commits is not the time for the next one.
func TestAHeartbeatWaitsForAllThatAreInProgress(t *testing.T) {
	inPace(t, func(p *pace) {
		p.slow = lease / 2
		p.beat(0, lease, lease/20)
		p.beat(1, lease, lease/20)
		time.Sleep(lease / 50)
		p.beat(2, 100*lease, lease/20)
		p.after(lease/4, func() { assert.Equal(t, 2, p.commits, "the second has been answered") })
		p.after(lease/4, func() { assert.Equal(t, 3, p.commits, "so has the first") })
		p.all.Wait()
	})
}

// Heartbeats that were given up before they were sent, because their locks were released or their time was up, must not make the others'
// commit fail, and cost no request if nobody waits any more.
func TestAHeartbeatThatWasGivenUpIsNotSent(t *testing.T) {
	for given := range 1 << 3 {
		for _, why := range []error{context.Canceled, context.DeadlineExceeded} {
			inPace(t, func(p *pace) {
				for i := range 3 {
					up, limit, name := given>>i&1 == 1, time.Hour, fmt.Sprintf("lock-%04d", i)
					if up && why == context.DeadlineExceeded {
						limit = time.Millisecond
					}
					ctx, cancel := context.WithTimeout(p.Context(), limit)
					defer cancel()
					if !up {
						p.all.Go(func() { assert.NoError(t, p.send(ctx, name, lease)) })
						continue
					}
					p.all.Go(func() { assert.ErrorIs(t, p.send(ctx, name, lease), why) })
					time.AfterFunc(time.Millisecond, func() {
						if why == context.Canceled {
							cancel()
						}
						assert.NoError(t, table.Table{Store: &p.counted}.Release(p.Context(), p.tokens[name], name))
					})
				}
				p.all.Wait()
				p.after(time.Second, func() { assert.Equal(t, min(1<<3-1-given, 1), p.commits, "%03b", given) })
			})
		}
	}
}

// Heartbeats have a store of their own if there is one.
func TestHeartbeatsGoThroughTheirOwnStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c, own counted
		tokens := holders(t, &own, 10)
		for name, err := range beats(t.Context(), &batch.Requests{Heartbeats: &own}, &c, tokens) {
			require.NoError(t, err, name)
		}
		assert.Equal(t, 1, own.commits)
		assert.Zero(t, c.commits)
	})
}

// A heartbeat whose time is up returns, and the shared commit continues for the others.
func TestAnImpatientHeartbeatDoesNotEndTheSharedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted{slow: time.Second}
		tokens := holders(t, &c, 2)
		var r batch.Requests
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			assert.NoError(t, table.Table{Store: r.Store(&c, lease)}.Heartbeat(t.Context(), tokens["lock-0000"], "lock-0000"))
		})
		start := time.Now()
		err := table.Table{Store: r.Store(&c, lease)}.Heartbeat(hasty, tokens["lock-0001"], "lock-0001")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		all.Wait()
	})
}

// A commit that nobody waits for any more is given up.
func TestASharedCommitEndsWithTheLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted{slow: time.Hour}
		tokens := holders(t, &c, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		for name, err := range beats(ctx, &batch.Requests{}, &c, tokens) {
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
		}
		synctest.Wait()
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// looks reads each lock, all at one instant, and returns what each saw.
func looks(t *testing.T, r *batch.Requests, c *counted, keys ...table.Keys) [][]table.Row {
	seen := make([][]table.Row, len(keys))
	var all sync.WaitGroup
	for i, k := range keys {
		all.Go(func() {
			rows, at, err := r.Store(c, lease).Read(t.Context(), "observe", table.Present, k)
			assert.NoError(t, err)
			assert.False(t, at.IsZero())
			seen[i] = rows
		})
	}
	all.Wait()
	return seen
}

// If the sum of the limits cuts a shared read off, each look is read alone: a look must not miss what others' rows
// displaced.
func TestALimitNeverHidesRowsOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		holders(t, &c, 100)
		c.slow = time.Millisecond
		var r batch.Requests
		keys := []table.Keys{
			{Ranges: []table.Range{{From: "lock-0000", To: "lock-0099~"}}, Limit: 3},
			{Names: []string{"lock-0099"}, Limit: 1},
			{Names: []string{"lock-0050"}, Limit: 1},
		}
		seen := looks(t, &r, &c, keys...) // two of them are sent together
		assert.Len(t, seen[0], 3)
		require.Len(t, seen[1], 1)
		assert.Equal(t, "lock-0099", seen[1][0].Name)
		require.Len(t, seen[2], 1)
		assert.Equal(t, "lock-0050", seen[2][0].Name)
	})
}

// A look that is read alone, because the shared read was cut off, ends with its own caller.
func TestALookThatIsReadAloneEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		holders(t, &c, 10)
		c.slow = time.Millisecond
		ended := make(chan time.Duration, 3)
		start := time.Now()
		slow := stalled{&c, ended, start}
		var r batch.Requests
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				_, _, err := r.Store(slow, lease).Read(ctx, "observe", table.Present, table.Keys{Ranges: []table.Range{{From: "lock-0000", To: "lock-0009"}}, Limit: 1})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		synctest.Wait()
		var took []time.Duration
		for range len(ended) {
			took = append(took, <-ended)
		}
		slices.Sort(took)
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, took)
	})
}

// stalled answers no read of one look, and says when its ctx has ended.
type stalled struct {
	*counted
	ended chan<- time.Duration
	start time.Time
}

func (s stalled) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if keys.Limit > 1 {
		return s.counted.Read(ctx, step, bound, keys)
	}
	wait(ctx, time.Hour)
	s.ended <- time.Since(s.start)
	return nil, time.Time{}, ctx.Err()
}

// A look that has the process for itself does not wait for others.
func TestASingleLookDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted{slow: time.Millisecond}
		var r batch.Requests
		one := table.Keys{Names: []string{"a"}}
		looks(t, &r, &c, one, one, one)
		require.Equal(t, 2, c.reads)
		c.slow = 0
		time.Sleep(10 * time.Millisecond)
		for range 3 {
			start := time.Now()
			looks(t, &r, &c, one)
			assert.Zero(t, time.Since(start))
			synctest.Wait()
		}
	})
}

// A look that others wait for does not wait for others, whatever else is in progress.
func TestALookThatIsWaitedForIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted{slow: time.Second}
		var r batch.Requests
		go looks(t, &r, &c, table.Keys{Names: []string{"a"}}, table.Keys{Names: []string{"b"}})
		synctest.Wait()
		start := time.Now()
		_, _, err := r.Store(&c, lease).Read(table.Apart(t.Context(), 1), "observe", table.Present, table.Keys{Names: []string{"c"}})
		require.NoError(t, err)
		assert.Equal(t, c.slow, time.Since(start))
		time.Sleep(c.slow)
	})
}

// A look that finds another one waiting is sent with it.
func TestALookJoinsOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted{slow: time.Millisecond}
		var r batch.Requests
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { looks(t, &r, &c, table.Keys{Names: []string{"a"}}) })
			time.Sleep(c.slow * 3 / 4)
		}
		all.Wait()
		assert.Equal(t, 2, c.reads, "the third was sent with the second, although no other was in progress any more")
	})
}

// Whatever is read at one instant, each sees what it would have read alone, up to both ends of its ranges: a waiter's range ends at
// a ticket, which may be its own. No read asks for more than a thousand keys, for a key or a range twice, or for more rows than its
// looks want.
func TestSharedReadsAreTheReadsOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		holders(t, &c, 100)
		present := slices.Sorted(maps.Keys(c.Rows()))
		for seed := range uint64(40) {
			dice := rand.New(rand.NewPCG(seed, 0))
			c.slow, c.keys = time.Millisecond, nil
			keys, rows := []table.Keys{{Names: []string{"first"}, Limit: 1}}, 1
			for range 2 + dice.IntN(20) {
				var k table.Keys
				for _, n := range dice.Perm(5000)[:1+dice.IntN(4)*dice.IntN(100)] {
					k.Names = append(k.Names, fmt.Sprintf("lock-%04d", n))
				}
				for _, n := range dice.Perm(10)[:dice.IntN(3)] {
					to := present[n+dice.IntN(10)] + []string{"", "~"}[dice.IntN(2)]
					k.Ranges = append(k.Ranges, table.Range{From: present[n], To: to})
				}
				k.Limit = (1 + dice.IntN(200)) * int(seed%3) // of some seeds, no look has a limit
				keys, rows = append(keys, k), rows+k.Limit
			}
			var r batch.Requests
			for i, seen := range looks(t, &r, &c, keys...) {
				c.slow = 0
				alone, _, err := c.Store.Read(t.Context(), "observe", table.Present, keys[i])
				require.NoError(t, err)
				assert.Equal(t, alone, seen, "seed %d: %v", seed, keys[i])
			}
			for _, k := range c.keys {
				assert.LessOrEqual(t, len(k.Names)+len(k.Ranges), 1000)
				assert.LessOrEqual(t, k.Limit, rows)
				assert.True(t, k.Limit > 0 || seed%3 == 0, "seed %d", seed)
				all := slices.Clone(k.Names)
				for _, within := range k.Ranges {
					all = append(all, fmt.Sprint(within))
				}
				assert.Len(t, slices.Compact(slices.Sorted(slices.Values(all))), len(all), "seed %d: no key twice", seed)
			}
			time.Sleep(time.Second)
		}
	})
}

// bounded notes for which rows it was asked with which bound.
type bounded struct {
	counted
	names map[table.Bound][]string
}

func (b *bounded) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	b.mu.Lock()
	b.names[bound] = append(b.names[bound], keys.Names...)
	b.mu.Unlock()
	return b.counted.Read(ctx, step, bound, keys)
}

// Looks with different bounds are not answered by one read: the present time by Spanner's clock would be taken from an older snapshot.
func TestEachLookHasItsOwnBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bounded{counted: counted{slow: time.Millisecond}, names: map[table.Bound][]string{}}
		var r batch.Requests
		var all sync.WaitGroup
		want := map[table.Bound][]string{}
		for i := range 20 {
			bound, name := []table.Bound{table.Present, table.Strong}[i%2], fmt.Sprint(i)
			want[bound] = append(want[bound], name)
			all.Go(func() {
				_, _, err := r.Store(b, lease).Read(t.Context(), "observe", bound, table.Keys{Names: []string{name}})
				assert.NoError(t, err)
			})
		}
		all.Wait()
		for bound, names := range want {
			assert.ElementsMatch(t, names, b.names[bound])
		}
		assert.LessOrEqual(t, b.reads, 3)
	})
}

// A heartbeat waits for others for a fiftieth of its lease, and never for longer than 5 ms.
func TestAHeartbeatWaitsForAFiftiethOfItsLease(t *testing.T) {
	for lease, window := range map[time.Duration]time.Duration{time.Hour: 5 * time.Millisecond, 250 * time.Millisecond: 5 * time.Millisecond, 100 * time.Millisecond: 2 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var c counted
			tokens, r, start := holders(t, &c, 1), &batch.Requests{}, time.Now()
			require.NoError(t, table.Table{Store: r.Store(&c, lease)}.Heartbeat(t.Context(), tokens["lock-0000"], "lock-0000"))
			assert.Equal(t, window, time.Since(start), lease)
		})
	}
}

// The requests of a client are forgotten with it. A process that opens a client for each of its tasks would otherwise grow.
func TestRequestsAreForgottenWithTheirClient(t *testing.T) {
	r := func() weak.Pointer[batch.Requests] { return weak.Make(batch.Of(&spanner.Client{}, "locks")) }()
	require.Eventually(t, func() bool { runtime.GC(); return r.Value() == nil }, 3*time.Minute, time.Millisecond)
}

// Everything but heartbeats and looks is passed on as it is.
// Clients come and go in several goroutines, and the runtime cleans up in yet another one.
func TestClientsAreForgottenWhileOthersAreMade(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				batch.Of(&spanner.Client{}, "locktable")
			}
			runtime.GC()
		})
	}
	all.Wait()
}

func TestOtherRequestsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		shared := table.Table{Store: (&batch.Requests{}).Store(&c, lease)}
		start := time.Now()
		require.NoError(t, shared.Release(t.Context(), hold(t, shared, "a"), "a"))
		assert.Zero(t, time.Since(start))
		for step, keys := range map[string]table.Keys{"list": {Names: []string{"a"}}, "observe": {All: true}} {
			c.reads, c.slow = 0, time.Second
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { _, _, _ = shared.Store.Read(t.Context(), step, table.Present, keys) })
			}
			all.Wait()
			assert.Equal(t, 3, c.reads, step)
		}
	})
}

// A caller whose ctx ends goes on at once, whatever it waits for, and whoever waits with it.
func TestACallerThatGivesUpWaitsForNobody(t *testing.T) {
	for name, call := range map[string]func(context.Context, table.Table, table.Token) error{
		"observe": func(ctx context.Context, tab table.Table, _ table.Token) error {
			_, err := tab.Observe(ctx, "m")
			return err
		},
		"lease-record": func(ctx context.Context, tab table.Table, _ table.Token) error {
			_, err := tab.Inspect(ctx, table.Observation{Name: "m"})
			return err
		},
		"asked": func(ctx context.Context, tab table.Table, token table.Token) error {
			_, _, err := tab.Asked(ctx, "m", token)
			return err
		},
		"heartbeat": func(ctx context.Context, tab table.Table, token table.Token) error {
			return tab.Heartbeat(ctx, token, "m")
		},
		"all rows": func(ctx context.Context, tab table.Table, _ table.Token) error {
			_, err := tab.Read(ctx, "list", table.Present, table.Keys{All: true})
			return err
		},
	} {
		for _, others := range []int{0, 1, 3} {
			synctest.Test(t, func(t *testing.T) {
				var c counted
				token := hold(t, table.Table{Store: &c.Store}, "m")
				c.slow = time.Hour
				var r batch.Requests
				var all sync.WaitGroup
				for i := range others {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+2)*time.Second)
						defer cancel()
						assert.Error(t, call(ctx, table.Table{Store: r.Store(&c, lease)}, token))
					})
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				assert.Error(t, call(ctx, table.Table{Store: r.Store(&c, lease)}, token))
				assert.Equal(t, time.Second, time.Since(start), "%s, beside %d", name, others)
				all.Wait()
				assert.Equal(t, time.Duration(others+1)*time.Second, max(time.Since(start), time.Second), "%s, of %d", name, others)
			})
		}
	}
}
