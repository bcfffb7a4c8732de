package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// lingerer is a machine whose work returns only when it is let go, whatever its ctx says.
type lingerer struct {
	*fleet.Machine
	b       *fleet.Fleet
	log     *fleet.Log
	token   spindle.Token
	term    spindle.Term
	work    context.Context
	free    context.Context // ends when the work is to return
	works   atomic.Int32
	stalls  atomic.Bool
	deleted bool // somebody has deleted the lease row
	ended   time.Time
	told    time.Time // when the work's ctx had ended, or the lock was gone if that was later
	calls   []<-chan error
	had     bool
	sudden  bool // the work's ctx ended because the lock was lost
	read    int  // of the log
}

// endings are what can end a term, or tell it to end.
var endings = []struct {
	name string
	do   func(*lingerer)
}{
	{"nothing", func(*lingerer) {}},
	{"StepDown", func(l *lingerer) { l.calls = append(l.calls, stepDown(context.Background(), l.Machine)) }},
	{"a request", func(l *lingerer) {
		_ = table.Table{Store: l.b.Store}.Ask(context.Background(), table.ByOperator, fleet.Name, table.Token(l.token))
	}},
	{"the end of Run", func(l *lingerer) {
		if l.ended.IsZero() {
			l.ended = time.Now()
			l.Stop()
		}
	}},
	{"a deleted row", func(l *lingerer) {
		l.deleted = true
		l.b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(l.token)})
	}},
	{"a refused write", func(l *lingerer) {
		l.deleted = true
		l.b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(l.token)})
		soon, cancel := context.WithTimeout(context.Background(), fleet.Lease/20) // there may be an outage
		defer cancel()
		_, _ = l.term.Apply(soon, nil)
	}},
	{"an outage", func(l *lingerer) { l.Link.Cut(); time.AfterFunc(2*fleet.Lease, l.Link.Mend) }},
	{"work that stalls", func(l *lingerer) { l.stalls.Store(true) }},
}

// linger starts a machine whose work lingers, and returns a function that lets the work return.
func linger(b *fleet.Fleet, opts ...spindle.Option) (l *lingerer, free func()) {
	to, log := logging()
	ctx, cancel := context.WithCancel(context.Background())
	l = &lingerer{b: b, log: log, free: ctx}
	l.Machine = b.Start("a", append(opts, to, spindle.WithLeader(l.lead))...)
	return l, cancel
}

func (l *lingerer) lead(ctx context.Context, term spindle.Term) {
	assert.EqualValues(l.b.T, 1, l.works.Add(1), "two leader functions run")
	defer l.works.Add(-1)
	if l.work != nil { // of a later term
		<-ctx.Done()
		return
	}
	l.token, l.term, l.work = term.Token(), term, ctx
	context.AfterFunc(ctx, func() { l.sudden = term.Left() <= 0 })
	for {
		select {
		case <-l.free.Done():
			return
		case <-time.After(fleet.Lease / 10):
			if !l.stalls.Load() {
				_ = term.Progress()
			}
		}
	}
}

// holds checks what must hold of the first term at any time.
func (l *lingerer) holds() {
	t := l.b.T
	synctest.Wait()
	has, working, over := l.Token() == l.token, l.free.Err() == nil, l.work.Err() != nil
	require.Equal(t, has, l.term.Left() > 0, "its time that is left")
	require.True(t, has || over, "work goes on without the lock")
	if over && l.told.IsZero() || l.had && !has {
		l.told = time.Now()
	}
	if over {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		require.Equal(t, has, !errors.Is(l.term.StepDown(now), spindle.ErrNotLeader), "what StepDown says")
	}
	if working {
		require.Equal(t, !l.deleted, l.b.Store.Rows()[fleet.Key(l.token)].Name != "", "its lease row")
		require.Equal(t, has, l.Leading(nil) == nil)
		if over && l.ended.IsZero() {
			age, err := time.Since(l.told), l.Health()
			require.True(t, age < 3*fleet.Lease == (err == nil) || age < 3*fleet.Lease+fleet.Lease/10, "told %v ago: %v", age, err)
			if err != nil {
				require.ErrorContains(t, err, "has not returned")
			}
		}
	}
	said := l.log.String()[l.read:]
	l.read += len(said)
	require.True(t, has || l.had || !strings.Contains(said, "the lock stays held"), said)
	require.True(t, !has || !strings.Contains(said, "will not compete again"), said)
	l.had = has
}

// Whatever ends a term whose work does not return when it must, and whatever happens next, each answer is true of the lock at that time:
// of HasLock, of the Term, of StepDown, of the probes, of the log and of Run. A program that can't rely on one of them has two leaders,
// or waits for ever.
func TestWhileWorkLingersEachAnswerIsTrueOfTheLock(t *testing.T) {
	type option struct {
		name string
		opts []spindle.Option
	}
	stall := spindle.WithStall(fleet.Lease / 3)
	for range 80 {
		first, second := endings[rand.N(len(endings))], endings[rand.N(len(endings))]
		between := []time.Duration{fleet.Lease / 6, fleet.Lease / 2, fleet.Lease, 3 * fleet.Lease / 2}[rand.N(4)]
		lingers := []time.Duration{fleet.Lease * 9 / 10, fleet.Lease * 5 / 2, 5 * fleet.Lease}[rand.N(3)]
		o := []option{{"", nil}, {"WithHandover", []spindle.Option{spindle.WithHandover()}}, {"WithStall", []spindle.Option{stall}},
			{"both", []spindle.Option{spindle.WithHandover(), stall}}}[rand.N(4)]
		t.Run(fmt.Sprintf("%s, %v later %s, works for %v more, %s", first.name, between, second.name, lingers, o.name), func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				t := b.T
				reports := fleet.NewReports()
				l, free := linger(b, append(o.opts, reports.Options())...)
				t.Cleanup(func() { free(); time.Sleep(time.Minute) })
				pass := func(d time.Duration) {
					for range d / (fleet.Lease / 20) {
						time.Sleep(fleet.Lease / 20)
						l.holds()
					}
				}
				pass(fleet.Lease)
				first.do(l)
				pass(between)
				second.do(l)
				pass(lingers)
				err, done := error(nil), false
				select {
				case err = <-l.Done:
					done = true
					require.ErrorContains(t, err, "has not returned")
					require.ErrorIs(t, l.Run(context.Background()), spindle.ErrRunning)
				default:
				}
				free()
				pass(2 * fleet.Lease)
				for _, call := range l.calls {
					require.Len(t, call, 1, "a call of StepDown is not answered")
					if <-call == nil {
						require.Empty(t, b.Store.Rows()[fleet.Key(l.token)].Name, "it was not released")
					}
				}
				if !done {
					l.Stop()
					err = <-l.Done
				}
				lost, told := 0, false
				for _, e := range l.Seen.All() {
					require.False(t, told && e.Token == l.token, "%v of a term that is over", e.Kind)
					if e.Kind == spindle.Lost {
						lost++
					}
					if told = told || e.Kind == spindle.Lost && e.Token == l.token; told && e.Token == l.token && l.sudden {
						require.ErrorIs(t, e.Err, context.Cause(l.work))
					}
				}
				metrics, counted := reports.Metrics(t), 0.0
				for series, n := range metrics {
					if strings.HasPrefix(series, "terms{") {
						counted += n
					}
				}
				require.EqualValues(t, lost, counted)
				require.NotContains(t, metrics, "held{lock=mylock}")
				if !done && errors.Is(l.Seen.Last().Err, spindle.ErrStopped) {
					require.Equal(t, b.Store.Rows()[fleet.Name].Heartbeat.IsZero(), err == nil, "%v", err)
				}
				b.Run(l.Machine)
				b.Until(3*fleet.Lease, l.Has)
				b.End(l.Machine)
			})
		})
	}
}

// startLingering starts a machine whose work lingers, and returns a function that lets the work return and ends the machine.
func startLingering(b *fleet.Fleet, opts ...spindle.Option) (l *lingerer, end func()) {
	l, free := linger(b, opts...)
	synctest.Wait()
	context.AfterFunc(l.work, func() { l.told = time.Now() })
	return l, func() {
		free()
		if l.ended.IsZero() {
			l.Stop()
		}
		<-l.Done
		time.Sleep(3 * fleet.Lease)
	}
}

// A call of StepDown returns however the term ends, with the reason why the lock was not released. Its caller may have no time limit of
// its own.
func TestAStepDownThatWaitsForWorkIsAnsweredHoweverTheTermEnds(t *testing.T) {
	stall := spindle.WithStall(fleet.Lease / 3)
	for _, then := range endings {
		for _, later := range []time.Duration{fleet.Lease / 6, fleet.Lease / 2} {
			for _, opts := range [][]spindle.Option{nil, {stall}, {spindle.WithHandover(), stall}} {
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					l, end := startLingering(b, opts...)
					done := stepDown(context.Background(), l.Machine)
					time.Sleep(later)
					l.stalls.Store(then.name == "the end of Run")
					then.do(l)
					time.Sleep(fleet.Lease*7/5 - later) // a handover lasts for a third of a lease, and the work has another one
					assert.Len(t, done, 1, "%s, %v after StepDown: in time", then.name, later)
					time.Sleep(3 * fleet.Lease)
					for _, call := range append(l.calls, done) {
						if assert.Len(t, call, 1, "%s, %v after StepDown", then.name, later) {
							assert.Error(t, <-call, then.name)
						}
					}
					end()
				})
			}
		}
	}
}

// Each time that the wait for the work has doubled since the work's ctx ended, the log says how long the wait has lasted and what that
// means for the lock. An operator who reads the log knows how long the work has been hanging.
func TestTheLogSaysHowLongTheWorkHasBeenWaitedFor(t *testing.T) {
	for _, ending := range endings {
		if ending.name == "nothing" || ending.name == "the end of Run" {
			continue
		}
		says := "has not returned since its term ended"
		if ending.name == "StepDown" || ending.name == "a request" {
			says = "the lock stays held until it returns"
		}
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			l, end := startLingering(b, spindle.WithHandover(), spindle.WithStall(fleet.Lease/3))
			ending.do(l)
			<-l.work.Done()
			synctest.Wait()
			for waited := fleet.Lease; waited <= 8*fleet.Lease; waited *= 2 {
				time.Sleep(time.Until(l.told.Add(waited - time.Millisecond)))
				l.log.Reset()
				time.Sleep(2 * time.Millisecond)
				assert.Contains(t, l.log.String(), says, "%s, after %v", ending.name, waited)
				assert.Contains(t, l.log.String(), "waited="+waited.String()+"\n", ending.name)
				if ending.name == "work that stalls" {
					break // the wait begins anew when the lease has expired
				}
				l.log.Reset()
				time.Sleep(time.Until(l.told.Add(2*waited - time.Millisecond)))
				assert.NotContains(t, l.log.String(), "waited=", "%s, more than %v later", ending.name, waited)
			}
			end()
		})
	}
}

// HasLock, Seen, the observer, the log and the metrics show the end of a term before the leader sends the release. A release can take long,
// and another leader may be elected before the release is answered.
func TestTheEndOfATermIsToldBeforeItsLockIsReleased(t *testing.T) {
	released := 0
	for _, ending := range endings[1:] {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			reports := fleet.NewReports()
			l, free := linger(b, spindle.WithHandover(), spindle.WithStall(fleet.Lease/3), reports.Options())
			synctest.Wait()
			l.Link.Lose(func(step string) bool { return step == "release" }, nil)
			ending.do(l)
			<-l.work.Done()
			free()
			synctest.Wait()
			time.Sleep(fleet.Lease / 10)
			released += l.Link.Counts()["release"]
			_, _, known := l.Machine.Lock.Seen()
			assert.False(t, l.Has() || known, ending.name)
			assert.Equal(t, spindle.Lost, l.Seen.Last().Kind, ending.name)
			assert.Contains(t, l.log.String(), "msg=lost", ending.name)
			assert.NotContains(t, l.log.String(), "msg=released", ending.name)
			metrics := reports.Metrics(t)
			assert.Zero(t, metrics["held{lock=mylock}"], ending.name)
			assert.EqualValues(t, 1, metrics["term.duration_count{lock=mylock}"], ending.name)
			b.End(l.Machine)
			time.Sleep(3 * fleet.Lease)
		})
	}
	assert.Greater(t, released, 3)
}
