package lock

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// spells answers a step with err in these spells of time, counted from now.
func spells(p *process, step string, err error, in ...[2]time.Duration) {
	began := time.Now()
	p.Refuse(func(s string) error {
		for _, spell := range in {
			if since := time.Since(began); s == step && since >= spell[0] && since < spell[1] {
				return err
			}
		}
		return nil
	})
}

// waits makes another process hold the lock for that long, and returns how long a waiter waited for it. The lock is a mutex,
// or a slot if the step is one that only semaphores have.
func waits(b *bed, p *process, step string, held time.Duration, opts ...Option) (time.Duration, error) {
	b.Helper()
	lock := func(p *process, opts ...Option) locking {
		if step == "holders" {
			return &slotLock{Semaphore: p.semaphore("m", 1, opts...)}
		}
		return p.mutex("m", opts...)
	}
	holder := lock(b.process())
	require.NoError(b, holder.Lock(b.Context()))
	unlock := func() { assert.NoError(b, holder.Unlock(context.WithoutCancel(b.Context()))) }
	timer := time.AfterFunc(held, unlock)
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	start, m := time.Now(), lock(p, opts...)
	err := m.Lock(ctx)
	took := time.Since(start)
	if err == nil {
		assert.NoError(b, m.Unlock(b.Context()))
	}
	if timer.Stop() {
		unlock()
	}
	return took, err
}

// A claim that was applied, but whose reply was lost, is not a reason to fail: neither if an outage follows, nor if the
// client sends it again and finds that the claim has already taken the free row.
func TestAnOutageThatHitsAClaimIsWaitedFor(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal} {
		for _, leases := range []int{1, 11, 25} { // tenths
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				m := p.mutex("m")
				require.NoError(t, m.Lock(b.Context()))
				require.NoError(t, m.Unlock(b.Context()))
				outage := time.Duration(leases) * m.contender.config.Lease / 10
				var until time.Time
				p.Again(memstore.Once("claim"))
				p.After(func(step string) {
					if step == "claim" && until.IsZero() {
						until = time.Now().Add(outage)
					}
				})
				p.Refuse(func(step string) error {
					if time.Now().Before(until) && (step != "claim" || leases == 25) { // a claim that arrives is answered
						return refused(code)
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(b.Context(), outage+3*m.contender.config.Lease)
				defer cancel()
				require.NoError(t, m.Lock(ctx), "%v for %v", code, outage)
				assert.False(t, until.IsZero())
				require.NoError(t, m.Unlock(b.Context()))
			})
		}
	}
}

// A call that returns without the lock leaves no claim behind, even if the reply to its claim was lost. This holds for a call that does
// not wait, and for a call whose ctx has ended. Otherwise, the other callers would have to wait until the claim expires.
func TestACallThatGivesUpLeavesNoClaimBehind(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			p.Lose(nil, memstore.Once("claim"))
			m, began := p.mutex("m"), time.Now()
			if waits {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, m.Lock(ctx), context.DeadlineExceeded)
			} else {
				_, err := m.TryLock(b.Context())
				require.Error(t, err)
			}
			time.Sleep(time.Until(began.Add(m.contender.config.Lease / 2)))
			ok, err := b.process().mutex("m").TryLock(b.Context())
			require.NoError(t, err)
			assert.True(t, ok, "waits: %v", waits)
		})
	}
}

// A call that gives up frees its own claim before the next goroutine of its process claims the lock. Both claim under the same id, so the
// call could otherwise free the claim of that goroutine.
func TestTheNextGoroutineClaimsOnceTheLastOneHasFreedItsClaim(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.Lose(memstore.Once("claim"), nil)
		m := p.mutex("m")
		ctx, cancel := within1s(b.Context())
		defer cancel()
		gaveUp, locked := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- m.Lock(ctx) }()
		synctest.Wait()
		go func() { locked <- p.mutex("m").Lock(b.Context()) }()
		synctest.Wait()
		p.Counts()
		p.Sicken("observe", memstore.Slow, time.Second/2)
		time.Sleep(elect.Attempt(m.contender.config.Lease) + time.Second/4)
		assert.Equal(t, map[string]int{"observe": 1}, p.Counts(), "whether the claim was applied")
		require.ErrorIs(t, <-gaveUp, context.DeadlineExceeded)
		require.NoError(t, <-locked)
	})
}

var mayPass = map[string]error{
	"permission":  refused(codes.PermissionDenied),
	"credentials": refused(codes.Unauthenticated),
	"session":     spanner.ToSpannerError(status.Error(codes.NotFound, "Session not found: projects/p/instances/i/databases/d/sessions/s")),
	"database":    spanner.ToSpannerError(status.Error(codes.NotFound, "Database not found: projects/p/instances/i/databases/d")),
	"table":       spanner.ToSpannerError(status.Error(codes.NotFound, "Table not found: locktable")),
}

// A refusal that passes does not end a wait, whichever step it hits. The time counts anew after each success of the step.
func TestARefusalThatPassesDoesNotEndAWait(t *testing.T) {
	for _, step := range []string{"observe", "queue", "claim"} {
		for name, err := range mayPass {
			t.Run(step+" "+name, func(t *testing.T) {
				inVirtualTime(t, func(b *bed) {
					p := b.process()
					from, held := 5*time.Millisecond, 40*time.Second
					if step == "queue" {
						from = 0
					}
					at := func(from, to time.Duration) [2]time.Duration { return [2]time.Duration{from, to} }
					spells(p, step, err, at(from, 9*time.Second), at(10*time.Second, 19*time.Second), at(20*time.Second, 29*time.Second), at(held-time.Second, held+8*time.Second))
					took, got := waits(b, p, step, held, spindle.WithLease(2*time.Second))
					require.NoError(t, got)
					assert.Less(t, took, held+10*time.Second)
				})
			})
		}
	}
}

// A refusal that passes does not end the waits of goroutines that have waited behind one that had the lock: their first request comes
// long after they began to wait. If the refusals last, all waits end at the same time, and not one after the other. If the table was
// missing at the first request, each call returns the error immediately.
func TestGoroutinesOfAProcessWaitOutARefusalTogether(t *testing.T) {
	for name, err := range mayPass {
		for _, lasts := range []time.Duration{time.Second, time.Hour} {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				first := p.mutex("m")
				require.NoError(b, first.Lock(b.Context()))
				began, ended := time.Now(), make(chan error)
				for range 5 {
					go func() {
						m := p.mutex("m")
						err := m.Lock(b.Context())
						if err == nil {
							err = m.Unlock(b.Context())
						}
						ended <- err
					}()
				}
				synctest.Wait()
				spells(p, "observe", err, [2]time.Duration{0, lasts})
				require.NoError(b, first.Unlock(b.Context()))
				for range 5 {
					if got := <-ended; lasts == time.Hour {
						require.ErrorIs(b, got, err, name)
					} else {
						require.NoError(b, got, name)
					}
				}
				assert.Less(b, time.Since(began), 15*time.Second)
			})
		}
	}
	inVirtualTime(t, func(b *bed) {
		p, ended, began := b.process(), make(chan error), time.Now()
		spells(p, "observe", mayPass["table"], [2]time.Duration{0, time.Hour})
		for range 5 {
			go func() { ended <- p.mutex("m").Lock(b.Context()) }()
		}
		for range 5 {
			require.ErrorIs(b, <-ended, mayPass["table"])
		}
		assert.Zero(b, time.Since(began))
	})
}

// A step that has been refused for one lease, or for 10 s if that is longer, ends the wait with the advice. Before, the
// waiter would have waited for nothing until its ctx ends.
func TestAStepThatIsRefusedForLongEndsAWait(t *testing.T) {
	for _, step := range []string{"observe", "queue", "claim", "holders"} {
		for _, lease := range []time.Duration{time.Second, 30 * time.Second} {
			t.Run(step+" "+lease.String(), func(t *testing.T) {
				inVirtualTime(t, func(b *bed) {
					p, held, limit := b.process(), 200*time.Second, max(lease, 10*time.Second)
					from := 5 * time.Second
					switch step {
					case "queue":
						from = 0
					case "claim", "holders":
						held = from
					}
					if step == "holders" { // the poll after the claim of a slot
						p.After(func(sent string) {
							if sent == "claim" { // of a released slot, which needs no confirmation
								p.Refuse(fleet.Refusing("observe", refused(codes.PermissionDenied)))
							}
						})
					} else {
						spells(p, step, refused(codes.PermissionDenied), [2]time.Duration{from, time.Hour})
					}
					took, err := waits(b, p, step, held, spindle.WithLease(lease))
					require.ErrorContains(t, err, "refused here")
					assert.ErrorContains(t, err, "roles/spanner.databaseUser")
					assert.GreaterOrEqual(t, took, from+limit)
					assert.Less(t, took, from+limit+limit/5+2*time.Second)
					if polls := p.when("observe"); step == "queue" || step == "claim" {
						assert.Zero(t, time.Since(polls[len(polls)-1]), "it does not wait for the deletion of its ticket, which may be refused, too")
					}
				})
			})
		}
	}
}

// Two refusals that are far apart are not one long refusal.
func TestRefusalsThatAreFarApartDoNotAddUp(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		patience := b.process().mutex("m").contender.patience()
		for range 5 {
			assert.False(t, patience.Ends("claim", refused(codes.Unauthenticated)))
			time.Sleep(time.Minute)
		}
	})
}

// A read is repeated until it succeeds, its caller gives up, or waiting does not help. What an earlier read of the same call was refused does
// not count: a caller that reads for a long time would fail in one short refusal.
func TestHowOftenAReadIsRepeated(t *testing.T) {
	const lease, limit = 2 * time.Second, 10 * time.Second
	passing, outage := mayPass["permission"], refused(codes.Unavailable)
	for name, c := range map[string]struct {
		err         error // of each attempt until the read passes
		passes      time.Duration
		try         bool
		ends        time.Duration // when ctx does
		fails       error
		least, most time.Duration
	}{
		"refused for a while": {err: passing, passes: limit - time.Second, least: limit - time.Second, most: limit},
		"refused for long":    {err: passing, passes: time.Hour, fails: passing, least: limit, most: limit + time.Second},
		"an outage":           {err: outage, passes: time.Minute, least: time.Minute, most: time.Minute + time.Second},
		"a try":               {err: outage, passes: time.Minute, try: true, fails: outage},
		"of a newer version":  {err: table.ErrNewer, passes: time.Minute, fails: table.ErrNewer},
		"ctx ends":            {err: outage, passes: time.Minute, ends: 5 * time.Second, fails: outage, least: 5 * time.Second, most: 5 * time.Second},
		"not answered":        {passes: time.Minute, ends: time.Hour, least: time.Minute, most: time.Minute + 2*time.Second},
		"a try, not answered": {passes: time.Minute, try: true, fails: context.DeadlineExceeded, least: elect.Attempt(lease), most: elect.Attempt(lease)},
	} {
		inVirtualTime(t, func(b *bed) {
			s := b.process().mutex("m", spindle.WithLease(lease)).contender
			patience := s.patience()
			patience.Passed("read") // the caller's first one
			for range 3 {
				ctx, cancel := context.WithTimeout(b.Context(), cmp.Or(c.ends, time.Hour))
				began := time.Now()
				err := s.persist(ctx, patience, c.try, func(ctx context.Context) error {
					if time.Since(began) >= c.passes {
						return nil
					}
					if c.err == nil {
						<-ctx.Done()
						return ctx.Err()
					}
					return c.err
				})
				cancel()
				assert.ErrorIs(t, err, c.fails, name)
				assert.GreaterOrEqual(t, time.Since(began), c.least, name)
				assert.LessOrEqual(t, time.Since(began), c.most, name)
				if c.fails != nil {
					break
				}
			}
		})
	}
}

// The error of a wait that ends during an outage says so, and does not look for the cause in this process. A caller of Acquire may already
// have a slot, and wait only for the poll that shows whether the other holders know it.
func TestAWaitThatEndsInAnOutageSaysSo(t *testing.T) {
	for _, step := range []string{"observe", "claim", "confirm", "holders"} {
		for kind, lock := range map[string]func(*process) locking{
			"a mutex":     func(p *process) locking { return p.mutex("m") },
			"a semaphore": func(p *process) locking { return &slotLock{Semaphore: p.semaphore("m", 1)} },
		} {
			if step == "holders" && kind == "a mutex" {
				continue
			}
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				outage := func(step string) { p.Refuse(failing(refused(codes.Unavailable), step)) }
				if outage(step); step == "holders" { // the poll after the confirmation
					p.After(func(sent string) {
						if sent == "confirm" {
							outage("observe")
						}
					})
				}
				ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
				defer cancel()
				err := lock(p).Lock(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NotContains(t, err.Error(), "goroutine", "%s, %s", kind, step)
				if step != "confirm" { // which the claim itself repeats
					assert.ErrorContains(t, err, "(last error: ", "%s, %s", kind, step)
					assert.ErrorContains(t, err, "refused here", "%s, %s", kind, step)
				}
			})
		}
	}
}

// The same holds for a read that is repeated until ctx ends, although no attempt is in progress at that time.
func TestAReadThatEndsInAnOutageSaysSo(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		ctx, cancel := within1s(b.Context())
		defer cancel()
		p.Refuse(func(string) error {
			if ctx.Err() != nil { // no request is sent
				return ctx.Err()
			}
			return refused(codes.Unavailable)
		})
		_, _, err := NewOnce(nil, "locktable", "m", p.options(nil)...).last(ctx, table.Strong, false, p.mutex("m").contender.patience())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "refused here")
	})
}

// If ctx ends first, the error says what is refused, even though the holder is known. It does not mention what was refused
// earlier.
func TestAWaitThatEndsSaysWhatIsRefused(t *testing.T) {
	for _, lasts := range []time.Duration{time.Hour, 2 * time.Second} {
		for step, from := range map[string]time.Duration{"queue": 0, "observe": time.Second} {
			inVirtualTime(t, func(b *bed) {
				require.NoError(t, b.process().mutex("m").Lock(b.Context()))
				p := b.process()
				spells(p, step, refused(codes.Unauthenticated), [2]time.Duration{from, lasts})
				ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
				defer cancel()
				err := p.mutex("m").Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "held: ")
				if lasts < time.Hour {
					assert.NotContains(t, err.Error(), "Unauthenticated")
					return
				}
				assert.ErrorContains(t, err, "Unauthenticated")
				assert.ErrorContains(t, err, "credentials")
				assert.NotContains(t, err.Error(), "roles/")
			})
		}
	}
}
