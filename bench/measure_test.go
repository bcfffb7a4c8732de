package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	systems = append(systems, toy)
	subprocess.Main(runTask)
	lease = 20 * time.Millisecond
	os.Exit(m.Run())
}

// toy is a system whose locks are files.
var toy = system{name: "toy", parts: 1, compete: holding(newFileLock), mutex: newFileLock}

// fileLock is a lock that is slow at first. Whoever acquires it sends one request.
type fileLock struct {
	*os.File
	server string
	turns  int // after which a process does not acquire it again
}

func newFileLock(p place, name string) (locker, error) {
	turns, _ := strconv.Atoi(p.Token)
	f, err := os.OpenFile(filepath.Join(p.Database, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &fileLock{f, p.Addr, turns}, err
}

// slowness is how long it takes to acquire a lock for the nth time.
func slowness(n int64) time.Duration { return time.Duration(max(9-n, 0)) * 5 * time.Millisecond }

const unlocking = 2 * time.Millisecond

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
	time.Sleep(slowness(info.Size()))
	r, err := http.Get(l.server)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

func (l *fileLock) Unlock(context.Context) error {
	time.Sleep(unlocking)
	return syscall.Flock(int(l.Fd()), syscall.LOCK_UN)
}

// toyGround returns a ground with servers of the toy, whose processes take at most so many turns, and the toy.
func toyGround(t *testing.T, turns int) (*ground, system) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	g, err := newGround("", nil)
	require.NoError(t, err)
	t.Cleanup(g.close)
	s := toy
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
		g, s := toyGround(t, 1)
		took, err := s.measureFailovers(g, 1, 2, signal)
		require.NoError(t, err)
		var least []float64
		for n := range int64(2) {
			gap := slowness(n + 2)
			if signal == syscall.SIGTERM {
				gap += unlocking
			}
			least = append(least, gap.Seconds()/lease.Seconds())
		}
		assertAtLeast(t, least, took)
	}
}

// A process that was killed holds nothing, even if its last report is read only after the kill.
func TestTheLastReportsOfAKilledProcessDoNotCount(t *testing.T) {
	g, s := toyGround(t, 1)
	places, err := s.places(g, crewSize)
	require.NoError(t, err)
	c, err := newCrew(g, s, "lock", places)
	require.NoError(t, err)
	require.NoError(t, c.await("the lock to be held", c.settled))
	victim := c.holder()
	c.events <- event{report: report{Kind: held, Part: "another part"}, seat: victim, by: c.seats[victim].process}
	gap, err := c.end(victim, syscall.SIGKILL)
	require.NoError(t, err)
	assert.Greater(t, gap, slowness(2))
	assert.Equal(t, []string{"lock"}, c.ownedBy(c.holder()))
	assert.Len(t, c.owner, 1)
}

// A cycle includes the unlocking. The first cycles do not count, because they are slower than the others.
func TestACycleLastsUntilTheLockIsUnlocked(t *testing.T) {
	g, s := toyGround(t, warmUp+5)
	took, err := s.measureCycles(g, 5)
	require.NoError(t, err)
	assertAtLeast(t, slices.Repeat([]time.Duration{unlocking}, 5), took)
}

// Each process takes its turns. The lock is idle from the end of one turn's work until the next process holds it, and the
// requests that precede the turns do not count.
func TestTurnsAreCountedAndTheTimesBetweenThem(t *testing.T) {
	g, s := toyGround(t, 3)
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

// While the lock stays held, the toy sends nothing. The requests with which the lock was acquired do not count.
func TestAtRestOnlyTheRequestsOfThatTimeCount(t *testing.T) {
	g, s := toyGround(t, 1)
	r, err := s.measureRest(g, 1)
	require.NoError(t, err)
	assert.Equal(t, atRest{holder: []float64{0}, waiter: []float64{0}}, r)
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
	say(1, b, left)
	assert.Empty(t, c.owner)
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
