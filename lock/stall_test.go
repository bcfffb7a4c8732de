package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

const (
	stallLease = 10 * time.Second
	stallsIn   = 2 * stallLease
)

// Work that has stalled does not hold the lock from that moment, and its Do says so. Others get the lock once the work has
// returned, or a lease later.
func TestWorkThatStallsDoesNotHoldTheLock(t *testing.T) {
	for name, c := range map[string]struct{ returns, least, most time.Duration }{
		"it returns": {stallLease / 2, stallLease / 2, stallLease + stallLease/10},
		"it hangs":   {10 * stallLease, stallLease + stallLease/2, 2*stallLease + stallLease/5},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				r := fleet.NewReports()
				p, q := b.process(), b.process()
				m, other := p.mutex("m", spindle.WithStall(stallsIn), r.Options()), q.mutex("m")
				stalled, returned := make(chan time.Time, 1), make(chan error, 1)
				go func() {
					returned <- Do(b.Context(), m, func(ctx context.Context) error {
						return Do(ctx, p.mutex("inner", spindle.WithStall(stallsIn)), func(ctx context.Context) error {
							for range 20 {
								time.Sleep(stallsIn * 4 / 9)
								Progress(ctx)
							}
							assert.NoError(t, ctx.Err(), "the outer and the inner Do have seen the progress")
							<-ctx.Done()
							time.Sleep(time.Millisecond) // the outer Do's stalls at the same time
							assert.Zero(t, m.Token())
							assert.Negative(t, m.Left())
							assert.ErrorIs(t, context.Cause(ctx), ErrLost)
							assert.ErrorIs(t, context.Cause(ctx), spindle.ErrStalled)
							stalled <- time.Now()
							time.Sleep(c.returns)
							assert.ErrorIs(t, Progress(ctx), ErrLost)
							return errors.New("what it returned")
						})
					})
				}()
				synctest.Wait()
				began := time.Now()
				lost := m.Lost()
				require.NoError(t, other.Lock(b.Context()))
				at := <-stalled
				<-lost
				assert.InDelta(t, 20*(stallsIn*4/9)+stallsIn, at.Sub(began), float64(time.Second))
				assert.GreaterOrEqual(t, time.Since(at), c.least)
				assert.LessOrEqual(t, time.Since(at), c.most)
				err := <-returned
				for _, is := range []error{ErrNotHeld, spindle.ErrStalled} {
					assert.ErrorIs(t, err, is)
				}
				assert.ErrorContains(t, err, "what it returned")
				assert.Equal(t, 2, len(p.log.lines("msg=lost"))+len(p.log.lines("msg=\"left to expire\"")), "%v", p.log.lines("")) // each lock once
				said := p.log.lines("the work has made no progress")
				require.Len(t, said, 2)
				assert.Regexp(t, ` locked_at=\S*stall_test.go:\d+ for=10s left=10s\n$`, said[0])
				metrics := r.Metrics(t)
				assert.Equal(t, 1.0, metrics["stalls{lock=m}"])
				assert.Equal(t, 1.0, metrics["terms{lock=m,reason=stalled}"])
				require.NoError(t, other.Unlock(b.Context()))
				require.NoError(t, Do(b.Context(), m, func(ctx context.Context) error { return nil }))
			})
		})
	}
}

// Progress with the ctx of a Do counts for that Do and for each Do around it, but not for a Do inside it, whose work may hang. Otherwise, outer
// work that goes on would lose its lock, or inner work that hangs would keep its lock.
func TestProgressCountsForEachDoAroundIt(t *testing.T) {
	const depth = 4
	for level := range depth {
		inVirtualTime(t, func(b *bed) {
			p, within := b.process(), []context.Context{}
			lockers := []Locker{p.mutex("m", spindle.WithStall(stallsIn)), p.semaphore("s", 2, spindle.WithStall(stallsIn)), p.semaphore("s", 2, spindle.WithStall(stallsIn)), p.mutex("n", spindle.WithStall(stallsIn))}
			var work func(ctx context.Context) error
			work = func(ctx context.Context) error {
				if within = append(within, ctx); len(within) < depth {
					return Do(ctx, lockers[len(within)], work)
				}
				for range 5 {
					time.Sleep(stallsIn * 4 / 9)
					assert.NoError(t, Progress(within[level]), level)
				}
				for i, ctx := range within {
					assert.Equal(t, i > level, errors.Is(context.Cause(ctx), spindle.ErrStalled), "Do %d, progress at %d", i, level)
					assert.Equal(t, i > level, working(ctx).token() == 0, "Do %d, progress at %d", i, level)
				}
				return nil
			}
			assert.Equal(t, level < depth-1, errors.Is(Do(b.Context(), lockers[0], work), ErrNotHeld), level)
		})
	}
}

// Work that was told to stop by its caller is still watched, and can't keep the lock for ever.
func TestWorkThatHangsAfterTheEndOfItsCtxStalls(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		m, other := b.process().mutex("m", spindle.WithStall(stallsIn)), b.process().mutex("m")
		ctx, cancel := context.WithCancel(b.Context())
		free, returned := make(chan struct{}), make(chan error, 1)
		go func() { returned <- Do(ctx, m, func(context.Context) error { <-free; return nil }) }()
		synctest.Wait()
		cancel()
		require.NoError(t, other.Lock(b.Context()))
		close(free)
		assert.ErrorIs(t, <-returned, spindle.ErrStalled)
		require.NoError(t, other.Unlock(b.Context()))
	})
}

// Work that panics is no longer watched, if the program goes on: it can't stall any more.
func TestWorkThatPanicsDoesNotStall(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		assert.Panics(t, func() {
			_ = Do(b.Context(), p.mutex("m", spindle.WithStall(stallsIn)), func(context.Context) error { panic("broken") })
		})
		time.Sleep(2 * stallsIn)
		assert.Empty(t, p.log.lines("progress"))
		assert.Empty(t, p.log.lines("stall"))
	})
}

// What Once itself reads before the work begins is no lack of progress of the work.
func TestTheReadsOfOnceAreNoStall(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		reads, until := 0, time.Time{}
		p.Refuse(func(step string) error {
			if step == "done" {
				if reads++; reads == 2 { // after the claim
					until = time.Now().Add(stallsIn * 5 / 4)
				}
			}
			if step == "done" && time.Now().Before(until) {
				return refused(codes.Unavailable)
			}
			return nil
		})
		ran, err := p.once("nightly", spindle.WithStall(stallsIn)).Do(b.Context(), KeyOf("1"), func(ctx context.Context, _ Run) error {
			assert.False(t, time.Now().Before(until))
			time.Sleep(stallsIn * 3 / 4)
			return ctx.Err()
		})
		assert.NoError(t, err)
		assert.True(t, ran)
	})
}

// Work can stall only while its lock is held. After a loss or an Unlock, work that takes long to end is no stall: an alarm for stalls would
// otherwise go off with each of them, and the error would name the wrong cause.
func TestWorkWhoseLockIsGoneDoesNotStall(t *testing.T) {
	for reason, end := range map[string]func(*bed, *process, *Mutex){
		"superseded": func(b *bed, _ *process, m *Mutex) { b.lose("m", m.Token()) },
		"expired":    func(_ *bed, p *process, _ *Mutex) { p.Cut() },
		"released":   func(b *bed, _ *process, m *Mutex) { assert.NoError(b, m.Unlock(b.Context())) },
	} {
		inVirtualTime(t, func(b *bed) {
			r, p := fleet.NewReports(), b.process()
			m := p.mutex("m", spindle.WithStall(stallsIn), r.Options())
			err := Do(b.Context(), m, func(ctx context.Context) error {
				end(b, p, m)
				<-ctx.Done()
				time.Sleep(3 * stallsIn)
				return nil
			})
			assert.ErrorIs(t, err, ErrNotHeld)
			assert.NotErrorIs(t, err, spindle.ErrStalled)
			metrics := r.Metrics(t)
			assert.NotContains(t, metrics, "stalls{lock=m}", reason)
			assert.Equal(t, 1.0, metrics["terms{lock=m,reason="+reason+"}"])
		})
	}
}
