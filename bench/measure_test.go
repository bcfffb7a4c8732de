package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
			g.onClose(func() { running-- })
			return place{}, errors.New("no")
		}}
		_, err := s.measure(rounds{}, "", nil)
		assert.ErrorContains(t, err, "long turns: no")
		assert.Equal(t, n, started)
		assert.Zero(t, running)
	}
}
