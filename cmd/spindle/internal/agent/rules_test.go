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

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
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

// wrong returns which guarantee a course violates, or "".
func (c course) wrong() string {
	held, gone := c.does(sayHeld) > 0, c.has(streamEnds) && (c.has(exits) || c.releasesAtEOF)
	for _, a := range []action{sayHeld, sayLost, sayRefused, mute, release, discard, end, quit} {
		if c.does(a) > 1 {
			return fmt.Sprintf("the action %d is repeated", a)
		}
	}
	if n := len(c.events); n > 0 && c.phase.holds() {
		told, sure := map[happening]action{beat: sayUntil, jeopardy: sayJeopardy}[c.events[n-1]]
		if sure && c.did[len(c.did)-1] != told {
			return "a program that may act is not told how long"
		}
	}
	switch last := slices.Index(c.did, end); {
	case held && c.does(release) > 0 && !c.has(asked) && !gone:
		return "the lock is released, but its program may act"
	case (c.phase == orphaned || c.does(mute) > 0 || held && c.has(termEnded) && c.does(release) == 0) && c.does(sayLost) == 0:
		return "a loss is not told"
	case (c.has(streamEnds) || c.has(exits)) && c.phase.wants(), c.phase == doubtful && c.does(doubt) == 0:
		return "a sign of the program's end is not doubted"
	case c.phase == missed && (c.has(streamEnds) || c.has(exits) || c.has(stalls) || c.has(asked) || c.has(stopAsked)):
		return "a program that wants its lock no more still waits for it"
	case c.has(stalls) && (c.phase.wants() || c.phase.holds()):
		return "a program that does not read has its lock, or waits for it"
	case c.phase == orphaned && c.does(mute) == 0:
		return "heartbeats go on for a lost lock"
	case c.does(release)+c.does(discard) > 1:
		return "the lock is given back twice"
	case last >= 0 && (last < len(c.did)-1 || c.phase != over):
		return "something follows the end"
	}
	return ""
}

// ends completes a course: what waits is refused, and what is held is released or expires.
func (c course) ends() course {
	if !c.has(won) && !c.has(refused) {
		c = c.on(refused)
	}
	if c.does(release) > 0 && !c.has(released) {
		c = c.on(released)
	}
	if c.phase != over && !c.has(termEnded) {
		c = c.on(termEnded)
	}
	return c
}

// explore visits every order of up to length events. Events that can happen only once are not repeated, and a term ends only
// after it has begun.
func explore(t *testing.T, from course, length int) (visited int) {
	if wrong := from.wrong(); wrong != "" {
		t.Fatalf("%s: %v: %v", wrong, from.events, from.did)
	}
	if all := from.ends(); all.phase != over && !(all.has(termEnded) && slices.Index(all.events, termEnded) < slices.Index(all.events, won)) {
		t.Fatalf("the hold does not end: %v: %v", all.events, all.did)
	}
	if length == 0 {
		return 1
	}
	visited = 1
	for _, what := range happenings {
		once := what != beat && what != jeopardy && what != stopAsked && what != asked
		if once && from.has(what) || what == won && from.has(refused) || what == refused && from.has(won) || what == released && from.does(release) == 0 {
			continue
		}
		visited += explore(t, from.on(what), length-1)
	}
	return visited
}

// Once a program has been told that it holds its lock, the lock is released only if the program asks for that, or if its
// stream is closed and its process has ended. Otherwise the agent tells it of the loss, and sends no more heartbeats. One sign of
// the program's end is doubted, even if the program was asked to stop: without the other one, the lock is lost. Every hold ends, and
// ends once. This is true for every order of events.
func TestEveryCourseOfAHold(t *testing.T) {
	for _, eof := range []bool{false, true} {
		t.Logf("%d courses", explore(t, course{machine: machine{releasesAtEOF: eof}}, 5))
	}
}

// What the agent does in the courses that programs and their agents usually take.
func TestTheUsualCourses(t *testing.T) {
	for _, c := range []struct {
		events on
		phase  phase
		did    do
	}{
		{on{won, streamEnds, exits}, releasing, do{sayHeld, doubt, release}}, // a program is killed
		{on{won, exits, streamEnds}, releasing, do{sayHeld, doubt, release}},
		{on{won, streamEnds, beat, doubted}, orphaned, do{sayHeld, doubt, sayUntil, sayLost, mute}}, // it is known to have ended only in part
		{on{won, exits, beat, doubted}, orphaned, do{sayHeld, doubt, sayUntil, sayLost, mute}},
		{on{won, stalls, streamEnds, exits}, releasing, do{sayHeld, sayLost, mute, release}}, // it dumps core: its lock is released before it expires
		{on{streamEnds, won}, releasing, do{quit, release}},                                  // it has given up: it never learns that it held the lock
		{on{exits, won}, releasing, do{quit, release}},
		{on{asked, won}, releasing, do{quit, release}},
		{on{stopAsked, won}, releasing, do{quit, release}},
		{on{termEnded, stopAsked, wonAgain}, releasing, do{quit, release}},
		{on{won, stopAsked, stopAsked, beat}, stopping, do{sayHeld, sayStop, sayUntil}}, // it is asked to stop once, and keeps its lock
		{on{termEnded, won}, over, do{sayLost, discard, end}},                           // it must not begin to work
		{on{termEnded, wonAgain, beat}, held, do{sayHeld, sayUntil}},                    // it never had what was lost
	} {
		got := course{}
		for _, what := range c.events {
			got = got.on(what)
		}
		assert.Equal(t, c.phase, got.phase, "%v", c.events)
		assert.Equal(t, []action(c.did), got.did, "%v", c.events)
	}
}

// fixed is a lock of which so much time is left.
type fixed struct{ left time.Duration }

func (fixed) Token() spindle.Token  { return 1 }
func (f fixed) Left() time.Duration { return f.left }

// stubborn is the lock of an agent that pauses for a second before and after it determines how much of the lease is
// left.
type stubborn struct {
	fixed
	now, deadline int64 // in milliseconds
}

func (s *stubborn) Left() time.Duration {
	s.now += 1000
	left := time.Duration(s.deadline-s.now) * time.Millisecond
	s.now += 1000
	return left
}

// An agent that pauses between reading its clocks and determining how much of the lease is left promises too little
// time, never too much.
func TestAPromiseIsNeverLaterThanTheLease(t *testing.T) {
	s := &stubborn{now: 50_000, deadline: 60_000}
	h := &hold{agent: New(Config{}), term: term{lock: s}}
	h.agent.clocks = func() reading { return reading{s.now, s.now, s.now} }
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
		a := attention{Stall: loop.Stall{Clock: elect.SystemClock{}, Limit: 3 * time.Second}}
		a.Progress()
		for i, check := range []struct {
			after  time.Duration
			unread int
			stalls bool
		}{
			{0, 0, false}, {time.Second / 2, 10, false}, {2 * time.Second, 30, false}, {time.Second / 4, 20, false}, {2 * time.Second, 25, false},
			{500 * time.Millisecond, 24, false}, {2 * time.Second, 24, false}, {time.Second, 24, true}, {time.Second, 40, true}, {time.Second, 39, false},
			{4 * time.Second, 39, true}, {time.Second, 0, false}, {4 * time.Second, 0, false}, {2 * time.Second, 7, false}, {2 * time.Second, 7, true},
		} {
			time.Sleep(check.after)
			assert.Equal(t, check.stalls, a.stalled(check.unread), i)
		}
	})
}

// A stall is noticed an eighth of the limit too late at most, whether the program waits for its lock, holds it or was asked to stop, and
// never too early: until then, nobody else can do its work.
func TestAStallIsNoticedSoon(t *testing.T) {
	for _, stall := range []time.Duration{100 * time.Millisecond, 3 * time.Second, time.Hour} {
		a := attention{Stall: loop.Stall{Limit: stall}}
		assert.LessOrEqual(t, a.every(), stall/8)
		for what, does := range map[string]func(b *bed, h *hold){"waits": func(b *bed, _ *hold) {}, "holds": func(*bed, *hold) {}, "stops": func(_ *bed, h *hold) { h.stop("stepdown") }} {
			among(t, 10, func(b *bed) {
				if what == "waits" {
					b.take("a")
				}
				_, err := fmt.Fprintf(b.dial("p"), "POST /v1/locks?name=a&lease=1h&stall=%v HTTP/1.0\r\n\r\n", stall) // and reads nothing
				require.NoError(t, err)
				b.settle()
				h := b.agent.all()[0]
				does(b, h)
				time.Sleep(stall - time.Millisecond)
				assert.True(t, h.status().phase.wants(), "%s, %v", what, stall)
				time.Sleep(stall/8 + 2*time.Millisecond)
				assert.False(t, h.status().phase.wants(), "%s, %v", what, stall)
			})
		}
	}
}

// A program that reads its lines at once keeps its lock, or its place, for as long as it wants, however rarely there is something to read.
func TestAProgramThatReadsEverythingNeverStalls(t *testing.T) {
	for _, stall := range []time.Duration{100 * time.Millisecond, 3 * time.Second, time.Minute} {
		among(t, 10, func(b *bed) {
			asks := func(program, name string) *stream {
				return b.asks(program, fmt.Sprintf("POST /v1/locks?name=%s&lease=1h&stall=%v", name, stall))
			}
			asks("p", "a").reads("held")
			asks("q", "a").reads("waiting")
			stops := asks("p", "b").reads("held")
			b.call("p", "POST /v1/holds/"+stops.Hold+"/stepdown")
			time.Sleep(10 * stall)
			var phases []phase
			for _, h := range b.agent.all() {
				phases = append(phases, h.status().phase)
			}
			assert.ElementsMatch(t, []phase{waiting, held, stopping}, phases, stall)
		})
	}
}

// Two programs have a lock one after the other, while the first may still act, because an operator released it. Whatever they are
// promised in whichever order, no other program gets the lock before the last promise is over to a program that can act. After
// that, nothing is left of the promises.
func TestALockIsBarredUntilTheLastPromiseOfWhoeverCanAct(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			a := New(Config{})
			holds, promised, over := []*hold{{agent: a}, {agent: a}}, map[*hold]time.Time{}, map[*hold]bool{}
			for _, h := range holds {
				h.term.names = []string{"a", fmt.Sprintf("of %p", h)}
				a.promises.keep(h)
			}
			for range 30 {
				time.Sleep(rand.N(time.Second))
				h := holds[rand.N(len(holds))]
				h.term.lock = fixed{rand.N(4*time.Second) - time.Second}
				switch rand.N(20) {
				case 0:
					h.lift()
					promised[h] = time.Time{}
				case 1:
					h.liftOnceOver()
					over[h] = true
				default:
					if over[h] {
						continue
					}
					h.stamp(&line{Event: "until"})
					if end := time.Now().Add(h.term.lock.Left()); !h.status().lifted && end.After(promised[h]) {
						promised[h] = end
					}
				}
				want := max(time.Until(promised[holds[0]]), time.Until(promised[holds[1]]), 0)
				require.Equal(t, want, max(a.promises.left("a"), 0))
			}
			for _, h := range holds {
				h.liftOnceOver()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, a.promises.to)
		})
	}
}
