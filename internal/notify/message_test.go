package notify

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Each field arrives as it was sent. Two fields that are exchanged would make a waiter wait for the wrong time, or make a holder
// tell the wrong waiter.
func TestAMessageIsReadAsItWasWritten(t *testing.T) {
	for k := waiting; k < kinds; k++ {
		for f := range flags(32) {
			for _, at := range []string{"10.0.0.1:7700", "[fd00::1]:65535"} {
				m := message{kind: k, flags: f, lock: id{1, 15: 16}, token: 1<<62 + 2, seq: 1<<62 + 3, after: table.MaxLease - 4, waiter: waiter{1<<62 + 5, 1<<63 + 6},
					ahead: 1<<31 + 7, rank: 8, trip: table.MaxLease - 9, from: netip.MustParseAddrPort(at)}
				got, ok := decode(m.signed(key{1}))
				assert.True(t, ok)
				assert.Equal(t, m, got)
			}
		}
	}
}

// A message of another version, or with a kind or a time that nobody sends, is refused as a whole: it would be misread. A process that can
// read the table can sign such a message, and must not stop another process with it.
func TestMessagesThatNobodySendsAreNotRead(t *testing.T) {
	good := message{kind: waiting, after: table.MaxLease, trip: table.MaxLease}
	for name, c := range map[string]struct {
		change func(m *message, b *[]byte)
		ok     bool
	}{
		"the longest times":  {func(*message, *[]byte) {}, true},
		"no times":           {func(m *message, _ *[]byte) { m.after, m.trip = 0, 0 }, true},
		"the last kind":      {func(m *message, _ *[]byte) { m.kind = kinds - 1 }, true},
		"no kind":            {func(m *message, _ *[]byte) { m.kind = 0 }, false},
		"an unknown kind":    {func(m *message, _ *[]byte) { m.kind = kinds }, false},
		"a longer wait":      {func(m *message, _ *[]byte) { m.after++ }, false},
		"a far longer wait":  {func(m *message, _ *[]byte) { m.after = math.MaxInt64 / 3 * 2 }, false},
		"a negative wait":    {func(m *message, _ *[]byte) { m.after = -1 }, false},
		"a longer poll":      {func(m *message, _ *[]byte) { m.trip++ }, false},
		"a negative poll":    {func(m *message, _ *[]byte) { m.trip = -1 }, false},
		"an older version":   {func(_ *message, b *[]byte) { (*b)[0]-- }, false},
		"a newer version":    {func(_ *message, b *[]byte) { (*b)[0]++ }, false},
		"a byte more":        {func(_ *message, b *[]byte) { *b = append(*b, 0) }, false},
		"a byte less":        {func(_ *message, b *[]byte) { *b = (*b)[1:] }, false},
		"nothing whatsoever": {func(_ *message, b *[]byte) { *b = nil }, false},
	} {
		m, unused := good, make([]byte, Size)
		c.change(&m, &unused)
		b := m.signed(key{1})
		c.change(new(message), &b)
		_, ok := decode(b)
		assert.Equal(t, c.ok, ok, name)
	}
}

// A limit admits so many events in each period, and the same number again in the next. Otherwise, a process that has once sent a
// lot would never tell anybody anything again.
func TestALimitHoldsInEachPeriodAnew(t *testing.T) {
	const period = time.Second
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		most := 1 + r.IntN(5)
		var w window
		var began, now time.Duration
		count := 0
		for range 200 {
			if now += time.Duration(r.IntN(5)) * period / 8; count == 0 || now-began >= period {
				began, count = now, 0
			}
			count++
			at := elect.Instant{Wall: int64(time.Hour + now), Mono: int64(time.Hour + now)}
			assert.Equal(t, count <= most, w.admits(at, most, period), fmt.Sprint("seed ", seed, " at ", now))
		}
	}
}
