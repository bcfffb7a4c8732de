package spindle_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

func TestTheLeaderIsKnownWithoutAnRPC(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a", spindle.WithValue("http://a"))
		_, _, ok := a.Lock.Seen()
		assert.False(t, ok, "before Run")
		b.Run(a)
		c := b.Start("c")
		var oldest time.Duration
		for range 100 {
			time.Sleep(time.Second / 3)
			synctest.Wait()
			a.Link.Counts()
			c.Link.Counts()
			own, age, ok := a.Lock.Seen()
			require.True(t, ok)
			assert.Equal(t, spindle.Leader{ID: "a", Value: "http://a", Token: a.Token(), Lease: fleet.Lease}, own)
			assert.LessOrEqual(t, age, fleet.Lease/3+fleet.Lease/60)
			seen, age, ok := c.Lock.Seen()
			require.True(t, ok)
			assert.Equal(t, own.Token, seen.Token)
			assert.LessOrEqual(t, age, fleet.Lease/3)
			oldest = max(oldest, age)
			assert.Empty(t, a.Link.Counts())
			assert.Empty(t, c.Link.Counts())
		}
		assert.Greater(t, oldest, fleet.Lease/4)
		assert.Zero(t, testing.AllocsPerRun(100, func() { a.Lock.Seen(); c.Lock.Seen() }))
		b.End(c)
		seen, _, ok := c.Lock.Seen()
		assert.False(t, ok, "after Run, %+v leads and is not looked at any more", seen)
		b.End(a)
		_, _, ok = a.Lock.Seen()
		assert.False(t, ok, "after Run")
	})
}

// While the lock can't be read, Seen reports nothing new except the age of its answer. The age counts from the time at
// which a request was sent. The next request is sent after the last one was answered.
func TestTheAgeOfWhatIsSeenIsAnIntervalAndTwoRoundTripsAtMost(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		slow := memstore.NewLocking(b.Store)
		slow.OneWay = 50 * time.Millisecond
		machine := func(id string) *fleet.Machine {
			m := b.Machine(id, spindle.WithLease(3*time.Second))
			m.Link.Store = slow
			b.Run(m)
			return m
		}
		a := machine("a")
		b.Until(time.Minute, a.Has)
		c := machine("c")
		time.Sleep(time.Minute)
		var oldest [2]time.Duration
		for range 60_000 {
			time.Sleep(time.Millisecond)
			for i, m := range []*fleet.Machine{a, c} {
				_, age, ok := m.Lock.Seen()
				require.True(t, ok)
				oldest[i] = max(oldest[i], age)
			}
		}
		const roundTrips = 2*2*50*time.Millisecond + 5*time.Millisecond
		assert.LessOrEqual(t, oldest[0], time.Second+time.Second/20+roundTrips, "heartbeats")
		assert.LessOrEqual(t, oldest[1], time.Second+roundTrips, "looks")
		assert.GreaterOrEqual(t, oldest[1], time.Second-time.Second/10)
		b.End(a, c)
	})
}

func TestALeaderThatCanNotBeSeenGetsOld(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		c := b.Start("c")
		time.Sleep(time.Minute)
		c.Link.Cut()
		time.Sleep(10 * fleet.Lease)
		seen, age, ok := c.Lock.Seen()
		require.True(t, ok)
		assert.Equal(t, a.Token(), seen.Token)
		assert.Greater(t, age, 10*fleet.Lease)
		assert.Less(t, age, 11*fleet.Lease)
		assert.Equal(t, "leader seen", c.Seen.Kinds())

		limited, cancel := context.WithTimeout(b.T.Context(), time.Second)
		defer cancel()
		_, err := c.Wait(limited)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "what is older than its lease is not known")
		b.End(c, a)
	})
}

func TestWhoIsSeenIsToldToBeGone(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithValue("http://a"))
		c := b.Start("c")
		first := a.Token()
		time.Sleep(10 * fleet.Lease)
		a.Link.Cut() // the machine crashes
		b.Until(2*fleet.Lease, c.Has)
		require.Equal(t, "leader seen, leader gone, elected", c.Seen.Kinds(), "seen once per term")
		for _, e := range c.Seen.All()[:2] {
			assert.Equal(t, spindle.Leader{ID: "a", Value: "http://a", Token: first, Lease: fleet.Lease, Heartbeat: e.Leader.Heartbeat}, e.Leader)
			assert.Equal(t, first, e.Token)
		}

		d, e := b.Start("d"), b.Start("e")
		b.End(c)
		b.Until(fleet.Lease, func() bool { return d.Has() || e.Has() })
		time.Sleep(fleet.Lease)
		follower := d
		if d.Has() {
			follower = e
		}
		assert.Equal(t, "leader seen, leader gone, leader seen", follower.Seen.Kinds())
		b.End(a, d, e)
	})
}

func TestWaitEndsWhenALeaderIsKnown(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Machine("a"), b.Machine("c")
		type answer struct {
			leader spindle.Leader
			err    error
		}
		wait := func(l *spindle.Lock) <-chan answer {
			got := make(chan answer, 1)
			go func() {
				leader, err := l.Wait(context.Background())
				got <- answer{leader, err}
			}()
			return got
		}
		first, second := wait(a.Lock), wait(c.Lock)
		time.Sleep(time.Hour)
		assert.Empty(t, first)
		b.Run(a)
		assert.Equal(t, "a", (<-first).leader.ID)
		assert.Empty(t, second)
		b.Run(c)
		assert.Equal(t, "a", (<-second).leader.ID)

		token := make(chan spindle.Token)
		go func() {
			t, _ := c.WaitElected(context.Background())
			token <- t
		}()
		b.End(a)
		assert.Equal(t, <-token, c.Token())
		assert.NotZero(t, c.Token())
		b.End(c)
	})
}

func TestAWaitThatEndsSaysWhy(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(b.T.Context())
		cancel(why)
		a := b.Machine("a")
		_, err := a.Wait(ctx)
		assert.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, `lock "mylock": Run was not called or has ended: context canceled: shutting down`)
		a.Link.Cut()
		b.Run(a)
		_, err = a.Wait(ctx)
		assert.ErrorContains(t, err, "no leader is known", "Run has not been able to look")
		a.Link.Mend()
		b.Until(fleet.Lease, a.Has)
		c := b.Start("c")
		_, err = c.WaitElected(ctx)
		assert.ErrorContains(t, err, "this process does not lead")
		b.End(a, c)
	})
}

// The age that Seen returns counts from when the poll was sent that showed the leader. Otherwise, where Spanner is slow, a program would
// rely on a leader that another may have replaced.
func TestTheAgeOfWhatIsSeenCountsFromWhenThePollWasSent(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Machine("c")
		var shown atomic.Pointer[time.Time]
		c.Link.After(func(step string) {
			if sent := time.Now(); step == "observe" {
				time.Sleep(fleet.Lease / 10)
				shown.Store(&sent)
			}
		})
		b.Run(c)
		time.Sleep(fleet.Lease / 10)
		for range 100 {
			synctest.Wait()
			_, age, ok := c.Lock.Seen()
			require.True(t, ok)
			require.Equal(t, time.Since(*shown.Load()), age)
			time.Sleep(fleet.Lease / 30)
		}
		b.End(a, c)
	})
}

// logging returns an option, and the log at levels Info and above.
func logging() (spindle.Option, *fleet.Log) {
	var log fleet.Log
	return spindle.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))), &log
}

func TestTheLogTellsAReleaseFromALockThatIsLeftToExpire(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		a := b.Start("a", to)
		b.End(a)
		assert.Contains(t, log.String(), `level=INFO msg=lost`)
		assert.Contains(t, log.String(), `level=INFO msg=released`)

		to, log = logging()
		c := b.Machine("c", to)
		ctx, stop := context.WithCancel(b.T.Context())
		require.NoError(t, c.Lock.Run(ctx)) // the machine does not learn of the release
		b.Until(fleet.Lease, c.Has)
		c.Link.Cut()
		stop()
		time.Sleep(2 * fleet.Lease)
		assert.NotContains(t, log.String(), "msg=released")
		assert.Equal(t, 1, strings.Count(log.String(), `lock=mylock id=c err="release: `))
		assert.Contains(t, log.String(), "network is cut")
		assert.Equal(t, 1, strings.Count(log.String(), "the stop could not be completed"), log.String())
	})
}

// A warning is for problems that an operator should look at. A lock that changes hands normally logs no warning.
func TestALockThatChangesHandsWithNothingWrongIsWarnedOfNowhere(t *testing.T) {
	for name, more := range map[string][]spindle.Option{
		"at once":        nil,
		"with handovers": {spindle.WithHandover()},
		"after work":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				var log fleet.Log
				work := func(ctx context.Context, _ spindle.Term) {
					select {
					case <-ctx.Done():
					case <-time.After(3 * fleet.Lease):
						if name != "after work" {
							<-ctx.Done()
						}
					}
				}
				opts := append([]spindle.Option{spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), spindle.WithLeader(work)}, more...)
				ms := []*fleet.Machine{b.Start("a", opts...), b.Start("b", opts...), b.Start("c", opts...)}
				for range 3 {
					time.Sleep(10 * fleet.Lease)
					for _, m := range ms {
						if m.Has() {
							require.NoError(t, m.StepDown(context.Background()))
							break
						}
					}
				}
				b.End(ms...)
				assert.Contains(t, log.String(), "msg=elected")
				assert.NotContains(t, log.String(), "level=WARN")
				assert.NotContains(t, log.String(), "level=ERROR")
			})
		})
	}
}

// Leader names the leader, even if the lock changes hands again and again while it is being read.
func TestLeaderFollowsALockThatChangesHands(t *testing.T) {
	for changes := range 4 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			tab, c := table.Table{Store: b.Store}, b.Machine("c")
			var token table.Token
			next := func() {
				if token != 0 {
					require.NoError(t, tab.Release(t.Context(), token, fleet.Name))
				}
				token = steps.Hold(t, tab, fleet.Name, fleet.Lease)
			}
			next()
			left := changes
			c.Link.After(func(string) {
				if left--; left >= 0 {
					next()
				}
			})
			leader, err := c.Leader(t.Context())
			require.NoError(t, err, "%d changes", changes)
			assert.Equal(t, spindle.Token(token), leader.Token)
		})
	}
}

// A leader whose heartbeats take effect, but are never acknowledged, gives up while its rows still say that it leads.
func TestAFormerLeaderDoesNotSeeItself(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		b.Until(time.Minute, a.Has)
		former := a.Token()
		a.Link.Lose(nil, func(step string) bool { return step == "heartbeat" })
		b.Until(time.Minute, func() bool { return !a.Has() })
		began, looks := time.Now(), 0
		for ; !a.Has(); time.Sleep(fleet.Lease / 100) {
			looks += a.Link.Counts()["observe"]
			l, _, ok := a.Lock.Seen()
			require.False(t, ok && l.Token == former, "it sees itself, %v after it gave up", time.Since(began))
		}
		assert.Greater(t, looks, 2)
		assert.NotContains(t, a.Seen.Kinds(), "leader seen")
		b.End(a)
	})
}

// witness is a log that compares what is said with what the lock answers at that moment.
type witness struct {
	*fleet.Machine
	t    *testing.T
	said *sync.Map
}

func (w *witness) Write(p []byte) (int, error) {
	has, token := w.HasLock()
	leader, _, known := w.Lock.Seen()
	line := string(p)
	of := func(t spindle.Token) bool { return strings.Contains(line, "token="+t.String()) }
	for what, holds := range map[string]bool{
		"msg=elected":        has && of(token) && known && !leader.Leaving,
		"msg=leaving":        has && of(token) && leader.Leaving,
		`msg="jeopardy`:      has && of(token),
		`msg="safe`:          has && of(token),
		`msg="asked to hand`: has && of(token),
		"msg=lost":           !has && !known,
		"msg=released":       !has,
		`msg="leader seen`:   !has && known && of(leader.Token),
		`msg="leader gone`:   !has && !of(leader.Token),
	} {
		if strings.Contains(line, what) {
			w.said.Store(what, true)
			assert.True(w.t, holds, "%v, %v, %+v: %s", has, token, leader, line)
		}
	}
	return len(p), nil
}

// What the log says of a lock is true when it says it: HasLock and Seen already answer accordingly. A program that acts on the log or on
// an event would otherwise find that it does not lead, or ask a leader that is gone.
func TestWhatTheLogSaysIsTrueWhenItSaysIt(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var said sync.Map
		start := func(id string) *fleet.Machine {
			w := &witness{t: t, said: &said}
			w.Machine = b.Machine(id, spindle.WithHandover(), spindle.WithLogger(slog.New(slog.NewTextHandler(w, nil))))
			b.Run(w.Machine)
			return w.Machine
		}
		a, c := start("a"), start("c")
		leader := func() *fleet.Machine {
			b.Until(3*fleet.Lease, func() bool { return a.Has() || c.Has() })
			time.Sleep(fleet.Lease)
			if a.Has() {
				return a
			}
			return c
		}
		require.NoError(t, leader().StepDown(context.Background()))
		_, err := b.Machine("operator").RequestHandover(context.Background(), leader().Token())
		require.NoError(t, err)
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(leader().Token())})
		for _, outage := range []time.Duration{fleet.Lease * 6 / 10, 2 * fleet.Lease} {
			m := leader()
			m.Link.Cut()
			time.Sleep(outage)
			m.Link.Mend()
		}
		leader()
		b.End(a, c)
		kinds := 0
		said.Range(func(any, any) bool { kinds++; return true })
		assert.Equal(t, 9, kinds)
	})
}

// Wherever an error appears whose remedy is known, it also says the remedy: in the log, in an event, and in the error of each call. It
// names the lock and the table, because a program can have many.
func TestAnErrorSaysHowToMendItWhereverItAppears(t *testing.T) {
	const hint = "the client needs roles/spanner.databaseUser on the database"
	denied := status.Error(codes.PermissionDenied, "no")
	refuse := func(string) error { return denied }
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		a := b.Machine("a", to)
		said := func(what string) {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, what) {
					assert.Contains(t, line, "hint=\""+hint)
				}
			}
			assert.Contains(t, log.String(), "level=WARN msg="+what)
			log.Reset()
		}
		a.Link.Refuse(refuse)
		b.Run(a)
		time.Sleep(5 * fleet.Lease)
		said(`"can't compete for the lock`)
		errs := map[string]error{"Health": a.Health()}
		_, errs["Leader"] = a.Leader(context.Background())
		_, errs["RequestHandover"] = a.RequestHandover(context.Background(), 1)
		a.Link.Refuse(nil)
		b.Until(fleet.Lease, a.Has)
		a.Link.Refuse(refuse)
		time.Sleep(fleet.Lease / 2)
		said(`"jeopardy: a heartbeat failed`)
		errs["Jeopardy"] = a.Seen.Last().Err
		b.Until(fleet.Lease, func() bool { return !a.Has() })
		synctest.Wait()
		said("lost")
		a.Link.Refuse(nil)
		b.Until(3*fleet.Lease, a.Has)
		a.Link.Refuse(fleet.Refusing("release", denied))
		errs["StepDown"] = a.StepDown(context.Background())
		a.Link.Refuse(nil)
		b.Until(3*fleet.Lease, a.Has)
		a.Link.Refuse(refuse)
		a.Stop()
		errs["done"] = <-a.Done
		for what, err := range errs {
			if assert.ErrorIs(t, err, denied, what) {
				assert.Regexp(t, `^spindle: [a-z ]+: lock "mylock" in table locktable: .*\(`+hint+`\)$`, err.Error(), what)
			}
		}
	})
}

// A process that holds locks for others learns that a lock was taken away, and when, whether a heartbeat finds it out or the release.
func TestALossThatOnlyTheReleaseFindsIsReported(t *testing.T) {
	for _, finds := range []string{"heartbeat", "release"} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			lost := make(chan elect.TermEvent, 10)
			a := b.Start("a", options.Option(func(c *options.Config) {
				c.Happened = func(e elect.TermEvent) {
					if e.What == elect.Lost {
						lost <- e
					}
				}
			}))
			key := fleet.Key(a.Token())
			a.Link.Refuse(func(step string) error {
				if step == finds && b.Store.Rows()[key].Name != "" {
					b.Operator(table.Write{Kind: table.Delete, Name: key})
				}
				return nil
			})
			if finds == "release" {
				assert.ErrorIs(t, a.StepDown(context.Background()), spindle.ErrSuperseded)
			}
			b.Until(fleet.Lease/2, func() bool { return len(lost) > 0 })
			e := <-lost
			assert.ErrorIs(t, e.Err, spindle.ErrSuperseded, finds)
			assert.WithinDuration(t, time.Now(), e.At.Time(), time.Millisecond, finds)
			b.End(a)
			assert.Empty(t, lost)
		})
	}
}
