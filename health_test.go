package spindle_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// clock runs a probe each time that it is read.
type clock struct {
	fleet.Clock
	probe  atomic.Value // func()
	asking atomic.Bool
}

// Now implements elect.Clock.
func (c *clock) Now() elect.Instant {
	if probe, set := c.probe.Load().(func()); set && c.asking.CompareAndSwap(false, true) {
		defer c.asking.Store(false)
		probe()
	}
	return c.Clock.Now()
}

// A leader has not looked at the lock since its term began. At the instant at which it loses the lock, this is no
// reason to restart it.
func TestWhoLosesTheLockIsHealthyAtEachInstant(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		ticks := &clock{}
		a := b.Machine("a", options.Option(func(c *options.Config) { c.Clock = ticks }))
		b.Run(a)
		time.Sleep(10 * fleet.Lease)
		require.True(t, a.Has())
		ticks.probe.Store(func() { assert.NoError(t, a.Health()) })
		require.NoError(t, a.StepDown(context.Background()))
		b.Until(fleet.Lease, a.Has)
		ticks.probe.Store(func() {})
		b.End(a)
	})
}

// A follower becomes unhealthy three leases after its last look, and reports since when and why.
func TestAFollowerThatSeesNothingIsUnhealthyAfterThreeLeases(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Machine("c", spindle.WithPoll(fleet.Lease/4))
		require.ErrorContains(t, c.Health(), `health: lock "mylock": not competing for the lock, because Run was not called or has ended`)
		b.Run(c)
		for range 600 {
			time.Sleep(time.Second)
			require.NoError(t, a.Health())
			require.NoError(t, c.Health())
		}
		_, age, _ := c.Lock.Seen()
		last := time.Now().Add(-age)
		c.Link.Refuse(fleet.Refusing("observe", status.Error(codes.Unavailable, "connection refused")))
		time.Sleep(time.Until(last.Add(3*fleet.Lease - time.Millisecond)))
		require.NoError(t, c.Health())
		time.Sleep(time.Millisecond)
		err := c.Health()
		require.ErrorContains(t, err, "polls or claims of the lock have been failing since "+last.UTC().Format(time.RFC3339)+" (30s ago)")
		require.ErrorContains(t, err, "connection refused")
		require.NoError(t, a.Health(), "the leader")
		c.Link.Refuse(nil)
		time.Sleep(fleet.Lease)
		require.NoError(t, c.Health())
		b.End(a, c)
		require.ErrorContains(t, a.Health(), "has ended")
	})
}

// A short lease does not make a short outage unhealthy.
func TestAShortLeaseIsPatientForTenSeconds(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLease(time.Second))
		time.Sleep(time.Minute)
		a.Link.Cut()
		time.Sleep(9 * time.Second)
		require.False(t, a.Has())
		require.NoError(t, a.Health())
		time.Sleep(3 * time.Second)
		require.Error(t, a.Health())
		b.End(a)
	})
}

// hangingLog is a log whose reader hangs.
type hangingLog struct {
	slog.Handler
	hang <-chan struct{}
}

func (h hangingLog) Handle(ctx context.Context, r slog.Record) error {
	<-h.hang
	return h.Handler.Handle(ctx, r)
}

func (h hangingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h hangingLog) WithAttrs(attrs []slog.Attr) slog.Handler { return h }

// A loop that hangs while it holds the lock cannot be detected by looks.
func TestALeaderWhoseLoopStandsStillIsUnhealthy(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		hang := make(chan struct{})
		a := b.Start("a", spindle.WithLogger(slog.New(hangingLog{slog.DiscardHandler, hang})))
		time.Sleep(3*fleet.Lease - time.Second)
		require.NoError(t, a.Health())
		require.False(t, a.Has(), "it says that it was elected, and sends no heartbeat")
		time.Sleep(fleet.Lease)
		require.ErrorContains(t, a.Health(), "no heartbeat has been acknowledged since")
		close(hang)
		b.Until(fleet.Lease, a.Has)
		require.NoError(t, a.Health())
		b.End(a)
	})
}

func TestALeaderWhoseHeartbeatHangsIsUnhealthy(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		hang := make(chan struct{})
		a.Link.After(func(step string) {
			if step == "heartbeat" {
				<-hang
			}
		})
		time.Sleep(2 * fleet.Lease)
		require.False(t, a.Has())
		require.NoError(t, a.Health())
		time.Sleep(2 * fleet.Lease)
		require.ErrorContains(t, a.Health(), "the last heartbeat of the ended term is still in progress")
		a.Link.After(nil)
		close(hang)
		b.Until(fleet.Lease, a.Has)
		require.NoError(t, a.Health())
		b.End(a)
	})
}

// A leader that was asked to step down keeps the lock while its function hangs. It reports this, and is unhealthy.
func TestALeaderFunctionThatHangsAfterARequestIsSaidAndIsUnhealthy(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var log fleet.Log
		hang := make(chan struct{})
		a := b.Start("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), spindle.WithHandover(), spindle.WithLeader(func(context.Context, spindle.Term) { <-hang }))
		c := b.Start("c")
		limited, cancel := context.WithTimeout(context.Background(), 5*fleet.Lease)
		defer cancel()
		_, err := b.Machine("operator").RequestHandover(limited, a.Token())
		require.ErrorContains(t, err, "the leader has announced that it is leaving")
		assert.True(t, a.Has(), "the work goes on, and so does the lock")
		assert.ErrorContains(t, a.Health(), "the leader function was told to stop but has not returned since")
		time.Sleep(2 * time.Hour)
		said := strings.Count(log.String(), "the leader function was told to stop but has not returned")
		assert.GreaterOrEqual(t, said, 5)
		assert.LessOrEqual(t, said, 12, "ever more seldom")
		assert.NotContains(t, log.String(), "level=ERROR")
		close(hang)
		b.Until(fleet.Lease, c.Has)
		assert.NoError(t, a.Health())
		b.End(a, c)
	})
}

// Claims that fail are normal while another candidate wins. If no candidate wins, something is wrong.
func TestClaimsThatNeverSucceedAreSaidAndUnhealthy(t *testing.T) {
	for name, refuse := range map[string]error{"claim": table.ErrAborted, "confirm": errors.New("no space")} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				var log fleet.Log
				a := b.Machine("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				a.Link.Refuse(fleet.Refusing(name, refuse))
				b.Run(a)
				time.Sleep(time.Hour)
				assert.Equal(t, 1, strings.Count(log.String(), "can't compete for the lock"), log.String())
				if name == "confirm" {
					assert.InDelta(t, 180, a.Link.Counts()["claim"], 10, "in 360 leases: one to find out, and one to cool down")
				}
				assert.ErrorContains(t, a.Health(), refuse.Error())
				c := b.Start("c")
				b.Until(2*fleet.Lease, c.Has)
				time.Sleep(fleet.Lease)
				assert.NoError(t, a.Health(), "another leads")
				b.End(a, c)
			})
		})
	}
}

func TestProbesAnswerForTheLeaderAndItsFollower(t *testing.T) {
	ask := func(p spindle.Probe) (int, string) {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json") // as a router may have done for all its handlers
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		return w.Code, w.Body.String()
	}
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		expect := func(p spindle.Probe, code int, says string) {
			t.Helper()
			got, body := ask(p)
			assert.Equal(t, code, got)
			assert.Contains(t, body, says)
			assert.Equal(t, code == http.StatusOK, strings.HasSuffix(body, "ok\n"), "a check may look for it: %q", body)
		}
		expect(a.Live, http.StatusOK, "ok")
		expect(c.Live, http.StatusOK, "ok")
		expect(a.Leading, http.StatusOK, "ok")
		expect(c.Leading, http.StatusServiceUnavailable, `lock "mylock": this process does not hold the lock`)

		a.Link.Cut()
		deadline := b.Until(2*fleet.Lease, func() bool { return !a.Has() })
		assert.Less(t, deadline, fleet.Lease)
		assert.Greater(t, deadline, fleet.Lease*6/10)
		expect(a.Leading, http.StatusServiceUnavailable, "does not hold the lock")
		expect(a.Live, http.StatusOK, "ok")
		b.Until(fleet.Lease, c.Has)
		expect(c.Leading, http.StatusOK, "ok")
		time.Sleep(4 * fleet.Lease)
		expect(a.Live, http.StatusServiceUnavailable, "polls or claims of the lock have been failing since")
		c.Clock.Wall.Add(int64(fleet.Lease)) // the machine was suspended, and no timer has run yet
		expect(c.Leading, http.StatusServiceUnavailable, "does not hold the lock")
		b.End(a, c)
	})
}

// Whatever a Lock does at the moment, a suspension of its machine and a step of its wall clock make it unhealthy at no
// instant, because a liveness probe would then kill it. In particular, it may have been told to stop.
func TestASuspensionMakesNoLockUnhealthyWhateverItDoes(t *testing.T) {
	hangs := func(h chan struct{}) spindle.Option {
		return spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-h; <-ctx.Done() })
	}
	for state, reach := range map[string]func(b *fleet.Fleet, a *fleet.Machine){
		"leads":          func(*fleet.Fleet, *fleet.Machine) {},
		"is in jeopardy": func(b *fleet.Fleet, a *fleet.Machine) { a.Link.Cut(); time.Sleep(fleet.Lease / 2) },
		"is leaving":     func(b *fleet.Fleet, a *fleet.Machine) { stepDown(context.Background(), a); synctest.Wait() },
		"was told to stop by StepDown": func(b *fleet.Fleet, a *fleet.Machine) {
			stepDown(context.Background(), a)
			time.Sleep(fleet.Lease/3 + time.Second)
		},
		"was told to stop by the end of Run": func(b *fleet.Fleet, a *fleet.Machine) { a.Stop(); time.Sleep(fleet.Lease / 10) },
		"has lost the lock, and its work hangs": func(b *fleet.Fleet, a *fleet.Machine) {
			b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
			b.Until(fleet.Lease, func() bool { return !a.Has() })
		},
	} {
		for step, d := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
			t.Run(state+", "+step, func(t *testing.T) {
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					hang := make(chan struct{})
					a := b.Start("a", hangs(hang))
					time.Sleep(fleet.Lease)
					reach(b, a)
					require.NoError(t, a.Health())
					a.Clock.Wall.Add(int64(d))
					for range 50 {
						require.NoError(t, a.Health())
						time.Sleep(fleet.Lease / 100)
						synctest.Wait()
					}
					close(hang)
					b.End(a)
				})
			})
		}
	}
	for state, lead := range map[string]func(context.Context, spindle.Term){
		"follows": func(ctx context.Context, _ spindle.Term) { <-ctx.Done() },
		"rests":   func(context.Context, spindle.Term) {},
	} {
		t.Run(state, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a := b.Start("a", spindle.WithLeader(lead))
				c := b.Start("c", spindle.WithLeader(lead))
				time.Sleep(6 * fleet.Lease)
				for _, m := range []*fleet.Machine{a, c} {
					m.Clock.Wall.Add(int64(time.Hour))
					for range 50 {
						require.NoError(t, m.Health())
						time.Sleep(fleet.Lease / 100)
						synctest.Wait()
					}
				}
				b.End(a, c)
			})
		})
	}
}
