package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
)

var happenings = []happening{won, refused, beat, jeopardy, termEnded, streamEnds, exits, stalls, doubted, asked, stopAsked, released}

// course is a machine together with its events so far and its actions.
type course struct {
	machine
	events []happening
	did    []action
}

func (c course) on(what happening) course {
	c.events, c.did = append(slices.Clone(c.events), what), slices.Clone(c.did)
	c.did = append(c.did, c.machine.on(what)...)
	return c
}

func (c course) has(what happening) bool { return slices.Contains(c.events, what) }

func (c course) does(a action) int {
	n := 0
	for _, did := range c.did {
		if did == a {
			n++
		}
	}
	return n
}

// holding returns a course in which the program holds its lock.
func holding(eof bool) course { return course{machine: machine{releasesAtEOF: eof}}.on(won) }

// explore visits every order of up to length events. Events that can happen only once are not repeated.
func explore(t *testing.T, from course, length int, check func(*testing.T, course)) (visited int) {
	check(t, from)
	if length == 0 || t.Failed() {
		return 1
	}
	visited = 1
	for _, what := range happenings {
		once := what != beat && what != jeopardy && what != stopAsked && what != asked
		if once && from.has(what) || what == won && from.has(refused) || what == refused && from.has(won) || what == released && from.does(release) == 0 {
			continue
		}
		visited += explore(t, from.on(what), length-1, check)
	}
	return visited
}

// Once a program has been told that it holds its lock, the lock is released only if the program asks for that, or if
// its stream is closed and its process has ended. This is true for every order of events.
func TestALockIsReleasedOnlyIfItsProgramCannotAct(t *testing.T) {
	for _, eof := range []bool{false, true} {
		t.Run(fmt.Sprint("released at the end of the stream: ", eof), func(t *testing.T) {
			n := explore(t, course{machine: machine{releasesAtEOF: eof}}, 5, func(t *testing.T, c course) {
				if c.does(release) == 0 || c.does(sayHeld) == 0 {
					return
				}
				gone := c.has(streamEnds) && (c.has(exits) || eof)
				require.True(t, c.has(asked) || gone, "%v: %v", c.events, c.did)
			})
			t.Logf("%d courses", n)
		})
	}
}

// Unless the program is known to have ended, the agent reports every loss to it, and sends no more heartbeats. The loss
// may have come because the program closed its stream, because another process has the stream, or because the program does
// not read.
func TestEveryLossIsToldAndMuted(t *testing.T) {
	explore(t, holding(false), 4, func(t *testing.T, c course) {
		if c.phase == orphaned {
			require.Equal(t, 1, c.does(sayLost), "%v", c.events)
			require.Equal(t, 1, c.does(mute), "%v", c.events)
		}
		if c.does(mute) > 0 || c.has(termEnded) && c.does(release) == 0 {
			require.Equal(t, 1, c.does(sayLost), "%v", c.events)
		}
	})
}

// No action is repeated that must happen only once, and no line follows the end of the response.
func TestAHoldEndsOnce(t *testing.T) {
	explore(t, course{}, 5, func(t *testing.T, c course) {
		for _, a := range []action{sayHeld, sayLost, sayRefused, mute, release, discard, end, quit} {
			require.LessOrEqual(t, c.does(a), 1, "%v: %v", c.events, c.did)
		}
		require.LessOrEqual(t, c.does(release)+c.does(discard), 1, "the lock is given back once: %v", c.events)
		if i := slices.Index(c.did, end); i >= 0 {
			require.Equal(t, len(c.did)-1, i, "%v: %v", c.events, c.did)
			require.Equal(t, over, c.phase)
		}
	})
}

// Every hold ends, whatever happened before: its lock is refused, is released, or expires.
func TestEveryHoldComesToItsEnd(t *testing.T) {
	explore(t, course{}, 5, func(t *testing.T, c course) {
		if !c.has(won) && !c.has(refused) {
			c = c.on(refused)
		}
		if c.does(release) > 0 && !c.has(released) {
			c = c.on(released)
		}
		if c.phase != over && !c.has(termEnded) {
			c = c.on(termEnded)
		}
		if c.has(termEnded) && c.events[0] == termEnded || c.phase != over && slices.Index(c.events, termEnded) < slices.Index(c.events, won) {
			return // impossible: a term ends only after it has begun
		}
		assert.Equal(t, over, c.phase, "%v: %v", c.events, c.did)
	})
}

// stubborn is the lock of an agent that pauses for a second before and after it determines how much of the lease is
// left.
type stubborn struct {
	locker
	now, deadline int64 // in milliseconds
}

func (s *stubborn) names() []string { return []string{"a"} }

func (s *stubborn) left() time.Duration {
	s.now += 1000
	left := time.Duration(s.deadline-s.now) * time.Millisecond
	s.now += 1000
	return left
}

// An agent that pauses between reading its clocks and determining how much of the lease is left promises too little
// time, never too much.
func TestAPromiseIsNeverLaterThanTheLease(t *testing.T) {
	s := &stubborn{now: 50_000, deadline: 60_000}
	clock := elect.SystemClock{}
	h := &hold{agent: &Agent{clock: clock, barred: barred{clock: clock, names: map[string][]bar{}}, clocks: func() reading { return reading{s.now, s.now, s.now} }}, lock: s}
	for _, event := range []string{"held", "until"} {
		l := line{Event: event}
		h.stamp(&l)
		assert.LessOrEqual(t, l.Until.Boottime, s.deadline)
		assert.LessOrEqual(t, l.Until.Monotonic, s.deadline)
		assert.LessOrEqual(t, l.Until.Unix, s.deadline)
	}
}

// The time in which a program may read nothing begins anew whenever it reads something, even if it never reads all.
func TestAProgramStallsOnceItReadsNothingForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attention
		for i, check := range []struct {
			after  time.Duration
			unread int
			stalls bool
		}{
			{0, 0, false}, {time.Second / 2, 10, false}, {2 * time.Second, 30, false}, {time.Second / 4, 20, false}, {2 * time.Second, 25, false},
			{500 * time.Millisecond, 24, false}, {2 * time.Second, 24, false}, {time.Second, 24, true}, {time.Second, 40, true}, {time.Second, 39, false},
			{4 * time.Second, 39, true}, {time.Second, 0, false},
		} {
			time.Sleep(check.after)
			assert.Equal(t, check.stalls, a.stalled(check.unread, 3*time.Second, elect.SystemClock{}.Now()), i)
		}
	})
}

// longest is a lock of which so much time is left.
type longest struct {
	locker
	time time.Duration
}

func (longest) names() []string       { return []string{"a"} }
func (l longest) left() time.Duration { return l.time }

// Two programs have a lock one after the other, while the first may still act, because an operator released it. Whatever they are
// promised in whichever order, no other program gets the lock before the last promise is over to a program that can act.
func TestALockIsBarredUntilTheLastPromiseOfWhoeverCanAct(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			clock := elect.SystemClock{}
			a := &Agent{clock: clock, barred: barred{clock: clock, names: map[string][]bar{}}, clocks: func() reading { return reading{} }}
			holds := []*hold{{owner: owner{id: "first"}, agent: a}, {owner: owner{id: "second"}, agent: a}}
			promised := map[*hold]time.Time{}
			for range 30 {
				time.Sleep(rand.N(time.Second))
				h := holds[rand.N(len(holds))]
				h.lock = longest{time: rand.N(4*time.Second) - time.Second}
				if rand.N(10) == 0 {
					h.lift()
					promised[h] = time.Time{}
				} else {
					h.stamp(&line{Event: "until"})
					if end := time.Now().Add(h.lock.left()); !h.status().lifted && end.After(promised[h]) {
						promised[h] = end
					}
				}
				want := max(time.Until(promised[holds[0]]), time.Until(promised[holds[1]]), 0)
				require.Equal(t, want, max(a.barred.left("a"), 0))
			}
		})
	}
}

// However many locks an agent has promised to programs, none is forgotten before its promise is over, and those whose promises are
// over do not pile up.
func TestOnlyPromisesThatAreOverAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := barred{clock: elect.SystemClock{}, names: map[string][]bar{}}
		until, most, alive := map[string]time.Time{}, 0, 0
		for i := range 3000 {
			time.Sleep(rand.N(100 * time.Millisecond))
			name := fmt.Sprint("lock ", rand.N(2000))
			left := rand.N(20 * time.Second)
			b.until(promise{b.clock.Now(), left}, fmt.Sprint("hold ", i), []string{name})
			if end := time.Now().Add(left); end.After(until[name]) {
				until[name] = end
			}
			alive = 0
			for name, end := range until {
				if time.Until(end) > 0 {
					alive++
				}
				require.Equal(t, max(time.Until(end), 0), max(b.left(name), 0), "%s of %d", name, len(b.names))
			}
			most = max(most, alive)
			require.LessOrEqual(t, len(b.names), 2*most+100)
		}
		require.Greater(t, most, 100, "too few at a time")
	})
}

// When a program is killed, its stream is closed and its process ends, in either order. Its lock is then released, and
// not reported as lost.
func TestAKilledProgramsLockIsReleased(t *testing.T) {
	for _, order := range [][]happening{{streamEnds, exits}, {exits, streamEnds}} {
		c := holding(false)
		for _, what := range order {
			c = c.on(what)
		}
		assert.Equal(t, releasing, c.phase)
		assert.Zero(t, c.does(sayLost))
		assert.Equal(t, 1, c.does(release))
	}
}

// If the program's stream is closed or its process has ended, but not both, the lock is lost when the doubt ends.
func TestADoubtEndsWithALoss(t *testing.T) {
	for _, what := range []happening{streamEnds, exits} {
		c := holding(false).on(what).on(beat)
		assert.Equal(t, doubtful, c.phase)
		assert.Zero(t, c.does(sayLost))
		c = c.on(doubted)
		assert.Equal(t, orphaned, c.phase)
		assert.Equal(t, 1, c.does(sayLost))
	}
}

// A process may end late, for example because it writes a core dump. Its lock is released as soon as it has ended,
// before the lease expires.
func TestALateEndReleasesWhatIsOrphaned(t *testing.T) {
	c := holding(false).on(stalls)
	require.Equal(t, orphaned, c.phase)
	c = c.on(streamEnds)
	require.Equal(t, orphaned, c.phase)
	c = c.on(exits)
	assert.Equal(t, releasing, c.phase)
}

// If a lock is acquired after the program has stopped wanting it, the agent releases it, and the program never learns
// that it was held.
func TestWhatComesTooLateIsGivenBack(t *testing.T) {
	for _, why := range []happening{streamEnds, exits, asked, stopAsked} {
		c := course{}.on(why)
		require.Equal(t, 1, c.does(quit), "%v", why)
		c = c.on(won)
		assert.Equal(t, releasing, c.phase)
		assert.Zero(t, c.does(sayHeld))
	}
}

// The program is asked to stop only once, and keeps its lock until it releases it.
func TestAStoppedProgramHoldsItsLock(t *testing.T) {
	c := holding(false).on(stopAsked).on(stopAsked).on(beat)
	assert.Equal(t, stopping, c.phase)
	assert.Equal(t, 1, c.does(sayStop))
	assert.Equal(t, 1, c.does(sayUntil))
}
