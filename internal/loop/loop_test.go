package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/elect"
)

// A receiver that takes one event each time that the Inbox is ready receives all events and the end, whenever the Inbox is closed.
func TestAReceiverOfOneEventAtATimeIsWokenForEachAndForTheEnd(t *testing.T) {
	for n := range 4 {
		for closed := range n + 1 { // after how many events have been received
			box := NewInbox[int]()
			for i := range n {
				require.True(t, box.Put(i))
			}
			var got []int
			for ended := false; !ended; {
				if len(got) == closed && !box.Closed() {
					box.Close()
					require.False(t, box.Put(-1))
				}
				select {
				case <-box.Ready():
				case <-time.After(10 * time.Second):
					require.Fail(t, "it is not woken", "%d events, closed after %d, received %v", n, closed, got)
				}
				e, ok := box.Next()
				if ended = !ok && box.Closed(); ok {
					got = append(got, e)
				}
			}
			assert.Len(t, got, n)
			for i, e := range got {
				assert.Equal(t, i, e, fmt.Sprint(got))
			}
		}
	}
}

// An error is a reason until the next success only.
func TestAnErrorBeforeTheLastSuccessIsNotTheReason(t *testing.T) {
	var p Pulse
	p.Begin()
	clock := elect.SystemClock{}
	age, going := p.Age(clock)
	require.True(t, going)
	require.Zero(t, age, "it has just begun")
	check := func() error { return p.Check(clock, time.Second, time.Minute, "no poll has succeeded") }
	p.Beat(clock.Now())
	p.Fail(errors.New("an outage"))
	require.ErrorContains(t, check(), "an outage")
	p.Beat(clock.Now())
	assert.NotContains(t, check().Error(), "an outage")
	p.Fail(errors.New("a refusal"))
	assert.ErrorContains(t, check(), "a refusal")
	p.Fail(nil)
	assert.NotContains(t, check().Error(), "a refusal")
}

// Of each row of failures, each kind is said once, and the end is said if a failure was. A single failure is not said,
// unless Spanner refused the request. This holds for every row, whatever the rows before it were.
func TestEachRowOfFailuresIsSaidOnce(t *testing.T) {
	var log strings.Builder
	p := Problems{What: "look", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	one, other := errors.New("no route to port 1"), errors.New("no such host")
	refused := status.Error(codes.PermissionDenied, "no")
	said := func(err error) string {
		log.Reset()
		if err == nil {
			p.Clear()
		} else {
			p.Note(err)
		}
		return log.String()
	}
	for range 3 {
		for i, c := range []struct {
			err  error
			want string
		}{
			{nil, ""}, {one, ""}, {nil, ""}, {one, ""}, {errors.New("no route to port 2"), "WARN"}, {one, ""}, {other, "WARN"},
			{one, ""}, {nil, "INFO"}, {nil, ""}, {refused, "WARN"}, {refused, ""}, {nil, "INFO"},
		} {
			if c.want == "" {
				assert.Empty(t, said(c.err), "%d", i)
			} else {
				assert.Contains(t, said(c.err), "level="+c.want, "%d", i)
			}
		}
	}
}

// Run can be called again once all code of the caller has returned, in whichever order it does.
func TestARunIsOverOnceAllCodeOfTheCallerHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for hangs := range 4 {
			for first := range 2 {
				holds := []chan struct{}{make(chan struct{}), make(chan struct{})} // the work and the observer
				waits := func(i int) bool { return hangs>>i&1 == 1 }
				s := Settings{Lease: time.Second, Clock: elect.SystemClock{}, Log: slog.New(slog.DiscardHandler), Wrap: func(_ string, err error) error { return err }}
				s.Observe = func(elect.Event) {
					if waits(1) {
						<-holds[1]
					}
				}
				var runs Runs
				start := func(ctx context.Context) error {
					return runs.Start(ctx, nil, s, func(ctx context.Context, _ <-chan struct{}, events *Mailbox) (func(), error) {
						events.Put(0, time.Now(), elect.Event{})
						<-ctx.Done()
						if waits(0) {
							return func() { <-holds[0] }, nil
						}
						return nil, nil
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.NoError(t, start(ctx))
				time.Sleep(time.Minute)
				for n, i := range []int{first, 1 - first} {
					if waits(i) || n == 0 && waits(1-i) {
						assert.ErrorIs(t, start(t.Context()), ErrRunning, "%b, %d", hangs, i)
					}
					close(holds[i])
					synctest.Wait()
				}
				again, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				assert.NoError(t, start(again), "%b", hangs)
				time.Sleep(time.Minute)
			}
		}
	})
}

// The result of a Run names all that has gone wrong: what could not be released and an observer that hangs. It is sent to done, or logged
// if there is no done or nobody receives from it.
func TestTheResultOfARunIsSentOrLogged(t *testing.T) {
	no := errors.New("not released")
	for _, failed := range []error{nil, no} {
		for _, hangs := range []bool{false, true} {
			for _, name := range []string{"none", "buffered", "nobody receives"} {
				synctest.Test(t, func(t *testing.T) {
					what, free := fmt.Sprintf("%v, the observer hangs: %v, done: %s", failed, hangs, name), make(chan struct{})
					sent := make(chan error, 1)
					done := map[string][]chan<- error{"buffered": {sent}, "nobody receives": {make(chan error)}}[name]
					var log strings.Builder
					var runs Runs
					s := Settings{Lease: time.Second, Clock: elect.SystemClock{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Wrap: func(step string, err error) error {
						assert.Equal(t, hangs, runs.running.Load(), "%s: whoever gets the result can call Run again, unless the observer hangs", what)
						return fmt.Errorf("%s: %w", step, err)
					}}
					s.Observe = func(elect.Event) {
						if hangs {
							<-free
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					require.NoError(t, runs.Start(ctx, done, s, func(ctx context.Context, _ <-chan struct{}, events *Mailbox) (func(), error) {
						events.Put(0, time.Now(), elect.Event{})
						<-ctx.Done()
						return nil, failed
					}))
					cancel()
					time.Sleep(time.Minute)
					synctest.Wait()
					defer close(free)
					fails := failed != nil || hangs
					said := map[string]string{"none": "level=WARN msg=\"the stop could not be completed\"", "nobody receives": "level=ERROR msg=\"no goroutine received"}[name]
					got := log.String()
					switch {
					case name == "buffered":
						require.Len(t, sent, 1, what)
						err := <-sent
						require.Equal(t, fails, err != nil, what)
						assert.Empty(t, log.String(), what)
						got = fmt.Sprint(err)
						assert.Equal(t, fails, strings.Contains(got, "stop: "), what)
					case name == "none" && !fails:
						assert.Empty(t, got, what)
					default:
						assert.Contains(t, got, said, what)
					}
					assert.Equal(t, failed != nil, strings.Contains(got, "not released"), what)
					assert.Equal(t, hangs, strings.Contains(got, "the observer has not returned"), what)
				})
			}
		}
	}
}
