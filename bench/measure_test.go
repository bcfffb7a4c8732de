package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func TestMain(m *testing.M) {
	systems = append(systems, toy, toyGroup)
	subprocess.Main(runTask)
	lease = brief
	os.Exit(m.Run())
}

const brief = 20 * time.Millisecond // the lease

// toy is a system whose locks are files. A process that opens a mutex sends a request.
var toy = system{name: "toy", parts: 1, compete: holding(newFileLock), mutex: func(p place, name string) (locker, error) {
	l, err := newFileLock(p, name)
	if err != nil {
		return nil, err
	}
	return l, l.(*fileLock).request()
}}

// toyGroup is a system whose lock has a part for each process.
var toyGroup = system{name: "toy group", parts: crewSize, compete: func(ctx context.Context, p place, name string, say say) error {
	for i := range crewSize {
		part := fmt.Sprint(name, i)
		l, err := newFileLock(p, part)
		if err != nil {
			return err
		}
		if syscall.Flock(int(l.(*fileLock).Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			say.during(ctx, part)
			return nil
		}
	}
	return errors.New("there is no part for this process")
}}

// fileLock is a lock that is slow at first. A process that acquires it sends one request.
type fileLock struct {
	*os.File
	server string
	turns  int // after which a process does not acquire it again
}

func newFileLock(p place, name string) (locker, error) {
	if lease != brief {
		return nil, fmt.Errorf("the lease is %v", lease)
	}
	turns, _ := strconv.Atoi(p.Token)
	f, err := os.OpenFile(filepath.Join(p.Database, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &fileLock{f, p.Addr, turns}, err
}

func (l *fileLock) request() error {
	r, err := http.Get(l.server)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// slowness is how long it takes at least to acquire a lock for the nth time.
func slowness(n int64) time.Duration { return time.Duration(max(9-n, 0)) * 5 * time.Millisecond }

const (
	unlocking = 10 * time.Millisecond // how long it takes at least
	more      = time.Millisecond      // the machine's clock may be adjusted meanwhile
)

func (l *fileLock) Lock(ctx context.Context) error {
	if l.turns--; l.turns < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	for errors.Is(syscall.Flock(int(l.Fd()), syscall.LOCK_EX), syscall.EINTR) {
	}
	if _, err := l.WriteString("x"); err != nil {
		return err
	}
	info, err := l.Stat()
	if err != nil {
		return err
	}
	time.Sleep(slowness(info.Size()) + more)
	return l.request()
}

func (l *fileLock) Unlock(context.Context) error {
	time.Sleep(unlocking + more)
	return syscall.Flock(int(l.Fd()), syscall.LOCK_UN)
}

// on returns a ground with servers of a toy, whose processes take at most so many turns, and the toy.
func on(t *testing.T, s system, turns int) (*ground, system) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	g, err := newGround("", nil)
	require.NoError(t, err)
	t.Cleanup(g.close)
	s.start = func(g *ground) (place, error) {
		dir, err := g.newDir()
		return place{Addr: server.URL, Database: dir, Token: strconv.Itoa(turns)}, err
	}
	return g, s
}

// assertAtLeast checks that values are in ascending order, and that each is at least what it should be.
func assertAtLeast[T float64 | time.Duration](t *testing.T, least, values []T) {
	t.Helper()
	slices.Sort(least)
	require.Len(t, values, len(least))
	assert.True(t, slices.IsSorted(values), "%v", values)
	for i := range values {
		assert.GreaterOrEqual(t, values[i], least[i], "%v: %v", i, values)
	}
}

// The time without a holder begins with the kill or with the end of the work, and ends when the next process holds the
// lock. The results are sorted, because the table shows their median and the last of them.
func TestTheTimeWithoutAHolderIsMeasured(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		g, s := on(t, toy, 1)
		took, err := s.measureFailovers(g, 1, 3, signal)
		require.NoError(t, err)
		var least []float64
		for n := range int64(3) {
			gap := slowness(n + 2)
			if signal == syscall.SIGTERM {
				gap += unlocking
			}
			least = append(least, gap.Seconds()/lease.Seconds())
		}
		assertAtLeast(t, least, took)
	}
}

// A process that was killed holds nothing, even if its last report is read only after the kill. If it held several parts, the
// gap lasts until the last of them is held again. The process that takes its seat must not end by itself.
func TestAKilledProcessHoldsNothing(t *testing.T) {
	g, s := on(t, toy, 1)
	places, err := s.places(g, crewSize)
	require.NoError(t, err)
	c, err := newCrew(g, s, "lock", places)
	require.NoError(t, err)
	require.NoError(t, c.await("the lock to be held", c.settled))
	victim := c.holder()
	c.owner["second"] = victim
	next := (victim + 1) % crewSize
	c.events <- event{report: report{Kind: held, Part: "third"}, seat: victim, by: c.seats[victim].process}
	c.events <- event{report: report{Kind: held, Part: "second", At: time.Now().Add(time.Hour).UnixNano()}, seat: next, by: c.seats[next].process}
	gap, err := c.end(victim, syscall.SIGKILL)
	require.NoError(t, err)
	assert.Greater(t, gap, time.Minute)
	assert.Empty(t, c.ownedBy(victim))
	assert.Len(t, c.owner, 2)
	require.NoError(t, c.fill(victim))
	c.seats[victim].Kill()
	assert.ErrorContains(t, c.await("an error", func() bool { return false }), "a candidate has ended")
}

// A cycle includes the unlocking. The first cycles do not count, because they are slower than the others.
func TestACycleLastsUntilTheLockIsUnlocked(t *testing.T) {
	g, s := on(t, toy, warmUp+5)
	took, err := s.measureCycles(g, 5)
	require.NoError(t, err)
	assertAtLeast(t, slices.Repeat([]time.Duration{unlocking}, 5), took)
}

// A system that is too slow for its turns to be measured is an error, which leaves the measurements of the other systems alone.
func TestTooFewTurnsAreAnError(t *testing.T) {
	_, err := lengths(make([]stint, warmUp))
	assert.ErrorContains(t, err, "there were only 10 turns")
	_, err = lengths(nil)
	assert.Error(t, err)
	g, s := on(t, toy, 0)
	_, err = s.measureTurns(g, 2, time.Millisecond, time.Nanosecond)
	assert.ErrorContains(t, err, "no process had a turn")
}

// Each process takes its turns. The lock is idle from the end of one turn's work until the next process holds it, and the
// requests that precede the turns do not count.
func TestTurnsAreCountedAndTheTimesBetweenThem(t *testing.T) {
	g, s := on(t, toy, 3)
	c, err := s.measureTurns(g, 2, time.Millisecond, time.Nanosecond)
	require.NoError(t, err)
	assert.Equal(t, []float64{3, 3}, c.turns)
	assert.Equal(t, []float64{1}, c.requests)
	var least []time.Duration
	for n := range int64(5) {
		least = append(least, slowness(n+2)+unlocking)
	}
	assertAtLeast(t, least, c.idle)
}

// A process holds the lock for as long as it should in each turn, and reports when it asked for it.
func TestATurnLastsAsLongAsItShould(t *testing.T) {
	g, s := on(t, toy, 2)
	all, err := s.take(g, 1, task{Hold: 30*time.Millisecond + more, Duration: time.Nanosecond}, func() {})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Len(t, all[0], 2)
	for i, turn := range all[0] {
		assert.GreaterOrEqual(t, time.Duration(turn.Held-turn.Asked), slowness(int64(i)+1))
		assert.GreaterOrEqual(t, time.Duration(turn.Left-turn.Held), 30*time.Millisecond)
		assert.GreaterOrEqual(t, time.Duration(turn.Done-turn.Left), unlocking)
	}
	assert.Less(t, all[0][0].Held, all[0][1].Asked)
}

// While a lock stays held, the toys send nothing. The requests with which the lock was acquired do not count. In a group,
// every process is a holder.
func TestAtRestOnlyTheRequestsOfThatTimeCount(t *testing.T) {
	for _, toy := range []system{toy, toyGroup} {
		g, s := on(t, toy, 1)
		r, err := s.measureRest(g, 1)
		require.NoError(t, err)
		want := atRest{holder: []float64{0}}
		if toy.parts == 1 {
			want.waiter = []float64{0}
		}
		assert.Equal(t, want, r)
	}
	assert.Equal(t, []float64{2}, mean([]float64{1, 1, 4}))
	assert.Nil(t, mean(nil))
}

// Each process has an address of its own, so the measurement counts the requests of each process separately.
func TestEachProcessHasAPlaceOfItsOwn(t *testing.T) {
	g, s := on(t, toy, 1)
	g.via = func(n int, addr string) (string, error) {
		if n == 3 {
			return "", errors.New("no fourth")
		}
		return fmt.Sprint(addr, "/", n), nil
	}
	all, err := s.places(g, 3)
	require.NoError(t, err)
	for i, p := range all {
		assert.Regexp(t, fmt.Sprint("^http://127.0.0.1:[0-9]+/", i, "$"), p.Addr)
		assert.Equal(t, all[0].Database, p.Database)
	}
	_, err = s.places(g, 4)
	assert.EqualError(t, err, "no fourth")
}

// Each message of a gRPC call is one request, however the network divides the messages.
func TestEachMessageIsCountedOnce(t *testing.T) {
	var call []byte
	sizes := []int{0, 1, 300, 0, 70_000}
	for _, n := range sizes {
		call = binary.BigEndian.AppendUint32(append(call, 0), uint32(n))
		call = append(call, bytes.Repeat([]byte{0xff}, n)...)
	}
	for _, most := range []int{1, 3, 4, 5, 6, 1000, len(call)} {
		var sent atomic.Int64
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, &messages{ReadCloser: io.NopCloser(bytes.NewReader(call)), sent: &sent}, make([]byte, most))
		assert.NoError(t, err)
		assert.EqualValues(t, len(sizes), sent.Load(), "%d bytes at a time", most)
	}
}

func TestAQuantileIsTheNearestValue(t *testing.T) {
	for n, want := range map[int][]float64{1: {0, 0, 0, 0}, 2: {0, 1, 1, 1}, 11: {0, 5, 10, 10}, 12: {0, 6, 10, 11}, 101: {0, 50, 95, 100}} {
		var all []float64
		for i := range n {
			all = append(all, float64(i))
		}
		assert.Equal(t, want, quantiles(all, 0, 0.5, 0.95, 1), n)
	}
	assert.Empty(t, quantiles(nil, 0.5))
}

// A part belongs to the seat whose current process was the last to report that it holds the part. The reports of two
// processes may arrive in any order. The reports of a process that was killed do not count.
func TestAPartIsHeldByWhoSaidSoLast(t *testing.T) {
	a, b := &process{}, &process{}
	c := &crew{seats: []*seat{{process: a}, {process: b}}, owner: map[string]int{}}
	say := func(seat int, by *process, kind string) {
		t.Helper()
		assert.NoError(t, c.note(event{report: report{Kind: kind, Part: "p"}, seat: seat, by: by}))
	}
	say(0, a, held)
	say(1, b, held)
	say(0, a, left)
	assert.Equal(t, map[string]int{"p": 1}, c.owner, "the second process has reported that it holds the part")
	assert.Equal(t, 1, c.holder())
	say(1, b, left)
	assert.Empty(t, c.owner)
	assert.Negative(t, c.holder())
	c.seats[0].process = &process{}
	say(0, a, held)
	assert.Empty(t, c.owner)
	assert.NoError(t, c.note(event{seat: 0, by: a, ended: true}))
	assert.ErrorContains(t, c.note(event{seat: 1, by: b, ended: true}), "a candidate has ended")
	c.seats[1].ended = true
	assert.NoError(t, c.note(event{seat: 1, by: b, ended: true}), "it was told to")
}

// If a measurement fails, its processes are ended, because they would disturb the next measurement. The other measurements
// are still made.
func TestAMeasurementThatFailsEndsItsProcesses(t *testing.T) {
	for stopsOnly, n := range map[bool]int{false: 6, true: 4} {
		started, running := 0, 0
		s := system{stopsOnly: stopsOnly, mutex: newEtcdMutex, start: func(g *ground) (place, error) {
			assert.Zero(t, running)
			started, running = started+1, running+1
			g.onClose(func() {
				running--
				assert.DirExists(t, g.dir, "a process may still write to it")
			})
			return place{}, errors.New("no")
		}}
		_, err := s.measure(rounds{}, "", nil)
		assert.ErrorContains(t, err, "long turns: no")
		assert.Equal(t, n, started)
		assert.Zero(t, running)
	}
}
