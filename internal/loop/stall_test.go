package loop

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
)

// jumping is the clock of a machine that was suspended, which only its wall clock shows, or of a process that did not run.
type jumping struct {
	elect.SystemClock
	suspended, stopped atomic.Int64
}

func (c *jumping) Now() elect.Instant {
	i, stopped := c.SystemClock.Now(), c.stopped.Load()
	return elect.Instant{Wall: i.Wall + c.suspended.Load() + stopped, Mono: i.Mono + stopped}
}

// Work on a machine that was suspended, or in a process that did not run, has had no time to make progress.
func TestTimeInWhichTheWorkCouldNotRunIsNoStall(t *testing.T) {
	for name, jump := range map[string]func(*jumping){
		"suspended": func(c *jumping) { c.suspended.Store(int64(time.Hour)) },
		"stopped":   func(c *jumping) { c.stopped.Store(int64(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) { testStall(t, jump) })
	}
}

func testStall(t *testing.T, jump func(*jumping)) {
	synctest.Test(t, func(t *testing.T) {
		var slow, ended []time.Duration
		began, c := time.Now(), &jumping{}
		s := &Stall{Clock: c, Limit: time.Minute, Slow: func(idle, left time.Duration) { slow = append(slow, idle, left) },
			End: func(err error) { assert.ErrorIs(t, err, elect.ErrStalled); ended = append(ended, time.Since(began)) }}
		stop := s.Watch()
		synctest.Wait()
		jump(c)
		time.Sleep(2 * time.Minute)
		stop()
		assert.Equal(t, []time.Duration{time.Minute / 2, time.Minute / 2}, slow)
		assert.Equal(t, []time.Duration{time.Minute}, ended)
	})
}

// frozen is the clock of a process that does not run for a while: nothing in it reads the clock meanwhile.
type frozen struct {
	elect.SystemClock
	from, to time.Time
}

func (c *frozen) Now() elect.Instant {
	if now := time.Now(); !now.Before(c.from) && now.Before(c.to) {
		time.Sleep(c.to.Sub(now))
	}
	return c.SystemClock.Now()
}

// A pause of the process is not counted even if it ends before the watcher would have looked next.
func TestAPauseIsNotCountedWheneverItComes(t *testing.T) {
	const limit = time.Minute
	for _, pause := range []time.Duration{limit / 20, limit/8 + 1, limit / 3, time.Hour} {
		for from := time.Duration(0); from < limit-limit/16; from += limit / 60 {
			synctest.Test(t, func(t *testing.T) {
				ended, began := time.Duration(0), time.Now()
				clock := &frozen{from: began.Add(from + 1), to: began.Add(from + 1 + pause)}
				slow := func(idle, left time.Duration) { // it may be late
					assert.GreaterOrEqual(t, idle, limit/2, "%v after %v", pause, from)
					assert.InDelta(t, limit, idle+left, float64(time.Millisecond), "%v after %v", pause, from)
				}
				s := &Stall{Clock: clock, Limit: limit, Slow: slow, End: func(error) { ended = time.Since(began) }}
				stop := s.Watch()
				time.Sleep(3*limit + pause)
				stop()
				if pause > limit/8 {
					assert.GreaterOrEqual(t, ended, limit+pause-limit/16, "%v after %v", pause, from)
					assert.LessOrEqual(t, ended, limit+pause, "%v after %v", pause, from)
				} else {
					assert.LessOrEqual(t, ended, limit+pause, "%v after %v", pause, from)
				}
			})
		}
	}
}

// Time for which the process stood still is not counted if it is more than an eighth of the limit, also after a warning, and shorter
// times are: a busy machine must neither end work that progresses nor make hanging work look alive. Work that reports progress as
// soon as the process runs again has no more time from then on than any other.
func TestOnlyLongPausesOfTheProcessAreNotCounted(t *testing.T) {
	const limit = time.Minute
	for _, c := range []struct{ pause, counts time.Duration }{{limit / 10, limit / 10}, {limit / 7, 0}, {limit / 3, 0}, {time.Hour, 0}} {
		for _, progress := range []time.Duration{0, 20 * time.Second, 40 * time.Second} {
			for _, resumes := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					ended, began, clock := time.Duration(0), time.Now(), &jumping{}
					s := &Stall{Clock: clock, Limit: limit, Slow: func(time.Duration, time.Duration) {}, End: func(error) { ended = time.Since(began) }}
					stop := s.Watch()
					time.Sleep(progress)
					assert.NoError(t, s.Progress())
					time.Sleep(time.Second)
					clock.stopped.Store(int64(c.pause))
					least, most := progress+limit-c.counts, progress+limit
					if resumes {
						assert.NoError(t, s.Progress())
						least, most = progress+time.Second+limit, progress+time.Second+limit+limit/16
					}
					time.Sleep(3 * limit)
					stop()
					assert.GreaterOrEqual(t, ended, least, "a pause of %v, %v after the start, resumes: %v", c.pause, progress+time.Second, resumes)
					assert.LessOrEqual(t, ended, most, "a pause of %v, %v after the start, resumes: %v", c.pause, progress+time.Second, resumes)
				})
			}
		}
	}
}

// Each time that work has made no progress for half of the limit, the watch says so once, while the other half is left. It ends the work
// only if the whole limit passes, however often the work has slowed down before: an operator can see each end coming.
func TestEachTimeThatWorkSlowsDownIsSaidOnce(t *testing.T) {
	const limit, quick, slow, slower, stalls = time.Minute, 29 * time.Second, 31 * time.Second, 59 * time.Second, 61 * time.Second
	for _, idle := range [][]time.Duration{{quick, quick, quick}, {slow}, {slow, slow}, {slower, slower, slower}, {slower, quick, slow}, {slow, quick, quick, slower, stalls}, {stalls}} {
		synctest.Test(t, func(t *testing.T) {
			var said, want []time.Duration
			ends := 0
			s := &Stall{Clock: elect.SystemClock{}, Limit: limit, Slow: func(idle, left time.Duration) { said = append(said, idle, left) }, End: func(error) { ends++ }}
			stop := s.Watch()
			for _, d := range idle {
				if time.Sleep(d); d >= limit/2 {
					want = append(want, limit/2, limit/2)
				}
				assert.NoError(t, s.Progress())
			}
			stop()
			assert.Equal(t, want, said, idle)
			assert.Equal(t, idle[len(idle)-1] == stalls, ends == 1, idle)
		})
	}
}

// Once stop has returned, the watch says nothing of the work any more: stop waits for a call of Slow or End that is in progress.
// Otherwise, the end of one call of the work could be taken for the end of the next one.
func TestTheWatchOfWorkIsOverOnceStopReturns(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var says atomic.Bool
			speak := func(on bool) {
				if on {
					says.Store(true)
					time.Sleep(time.Hour)
					says.Store(false)
				}
			}
			s := &Stall{Clock: elect.SystemClock{}, Limit: time.Minute, Slow: func(time.Duration, time.Duration) { speak(!ends) }, End: func(error) { speak(ends) }}
			stop := s.Watch()
			time.Sleep(2 * time.Minute)
			assert.True(t, says.Load())
			stop()
			assert.False(t, says.Load())
		})
	}
}
