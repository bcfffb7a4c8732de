package elect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// ward is a term whose heartbeats are answered as a seed decides, and what must become of the term with these answers.
type ward struct {
	*testing.T
	*rand.Rand
	mu sync.Mutex

	deadline time.Time // a lease minus the margin after the last acknowledged request was sent
	row      *[]error  // the answers to the heartbeats since that one; nil: not yet answered
	failed   error     // why the last heartbeat was not acknowledged
	stalled  time.Time // when the work stalled; zero: it did not
	lost     error     // why the term has ended; nil: it is held, or the deadline has passed
	expects  []TermEvent
	happened []TermEvent
}

var errStall = errors.New("the work stands still")

func (w *ward) expect(what TermEventKind, err error) {
	e := TermEvent{What: what, Err: err}
	if what == InJeopardy || what == Safe {
		e.At, e.Left = SystemClock{}.Now(), time.Until(w.deadline)
	}
	w.expects = append(w.expects, e)
}

func (w *ward) fail(err error) {
	if w.failed == nil {
		w.expect(InJeopardy, err)
	}
	w.failed = err
}

// heartbeat answers a heartbeat, and notes what this means for the term.
func (w *ward) heartbeat(ctx context.Context) error {
	w.mu.Lock()
	sent, row := time.Now(), w.row
	n := len(*row)
	if n > 0 && (*row)[n-1] == nil {
		w.fail(errUnanswered)
	}
	*row = append(*row, nil)
	until, limited := ctx.Deadline()
	assert.True(w, limited && !until.After(w.deadline), "a heartbeat can be in flight after the deadline")
	assert.True(w, w.stalled.IsZero() || sent.Sub(w.stalled) < lease, "a heartbeat although the work stalled a lease ago")
	assert.Equal(w, n, table.ApartOf(ctx))
	answer, takes := error(nil), time.Duration(w.Int64N(int64(lease/4)))
	switch r := w.IntN(40); {
	case r < 12:
		answer = fmt.Errorf("failure %d", w.Int())
	case r < 24:
		takes = time.Duration(w.Int64N(int64(lease)))
	case r < 25:
		answer = table.ErrSuperseded
	}
	if most := time.Until(until) - 1; takes >= most {
		answer, takes = context.DeadlineExceeded, most
	}
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		answer = ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(answer, context.Canceled), row != w.row, w.lost != nil, !time.Now().Before(w.deadline):
		return answer // nobody waits for it any more
	case answer == nil:
		w.deadline = sent.Add(Limit(lease))
		if w.failed != nil {
			w.expect(Safe, nil)
		}
		w.row, w.failed = &[]error{}, nil
		w.expect(Beat, nil)
	case errors.Is(answer, table.ErrSuperseded):
		w.lost = answer
		w.expects = append(w.expects, TermEvent{What: Lost, Err: answer, At: Instant{sent.UnixNano(), int64(sent.Sub(processStart))}})
	default:
		w.fail(answer)
		if (*row)[n] = answer; n == len(*row)-1 {
			w.expect(Beat, nil)
		}
	}
	return answer
}

func (w *ward) notify(e TermEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.What == Lost || time.Now().Before(w.deadline) { // at the deadline, a heartbeat is given up as well
		w.happened = append(w.happened, e)
	}
}

// A term's deadline is a lease, minus the margin, after the last acknowledged heartbeat was sent, whatever becomes of the
// heartbeats before and after it. A later deadline would allow two holders, and an earlier one would end terms for nothing.
func TestADeadlineCountsFromTheSendingOfTheLastHeartbeatThatWasAcknowledged(t *testing.T) {
	kinds := map[TermEventKind]int{}
	for seed := range 60 {
		synctest.Test(t, func(t *testing.T) {
			w := &ward{T: t, Rand: rand.New(rand.NewPCG(uint64(seed), 1)), row: &[]error{}}
			store := &memstore.Store{}
			term := candidate("a", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == "heartbeat" {
					return w.heartbeat(ctx)
				}
				return call(ctx, store)
			}), "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			w.deadline = time.Now().Add(Limit(lease))
			k := &Keeper{Term: term, Interval: lease / 3, Notify: w.notify}
			k.Start()
			for range 200 {
				w.mu.Lock()
				pause := time.Duration(w.Int64N(int64(lease / 5)))
				w.mu.Unlock()
				time.Sleep(pause)
				synctest.Wait()
				w.mu.Lock()
				if seed%3 == 0 && w.IntN(50) == 0 && w.stalled.IsZero() && time.Now().Before(w.deadline) && w.lost == nil {
					w.stalled = time.Now()
					require.True(t, term.Stall(errStall))
				}
				over := w.lost != nil || !time.Now().Before(w.deadline)
				if !over {
					require.Equal(t, time.Until(w.deadline), term.lasts(), "seed %d", seed)
					require.Equal(t, w.stalled.IsZero(), term.Held(), "seed %d", seed)
					require.Equal(t, w.stalled.IsZero(), term.Context().Err() == nil)
					require.NoError(t, term.Over().Err())
					require.Equal(t, w.failed != nil, term.inJeopardy(), "seed %d", seed)
					require.ErrorIs(t, term.standing.Load().failed, w.failed, "seed %d", seed)
				}
				w.mu.Unlock()
				if over {
					break
				}
			}
			if err := k.Stop(); err == nil {
				term.End(nil)
			} else {
				if w.lost == nil {
					w.lost = ErrExpired
					if !w.stalled.IsZero() {
						w.lost = errStall
					}
					w.expects = append(w.expects, TermEvent{What: Lost, Err: w.lost, At: Instant{w.deadline.UnixNano(), int64(w.deadline.Sub(processStart))}})
				}
				require.ErrorIs(t, err, w.lost)
			}
			require.False(t, term.Held())
			require.Len(t, w.happened, len(w.expects), "seed %d", seed)
			for i, e := range w.happened {
				want := w.expects[i]
				kinds[e.What]++
				require.ErrorIs(t, e.Err, want.Err, "seed %d", seed)
				e.Err, want.Err = nil, nil
				require.Equal(t, want, e, "seed %d, event %d", seed, i)
			}
		})
	}
	for _, kind := range []TermEventKind{InJeopardy, Safe, Beat, Lost} {
		assert.Greater(t, kinds[kind], 20)
	}
}
