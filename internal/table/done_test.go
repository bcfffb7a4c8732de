package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	day = 24 * time.Hour
	at3 = "2026-11-22T03:00:00Z"
)

func TestALargerKeyOfAnotherPeriodPassesOnlyTheTicksThatWereDueWhenItWasRecorded(t *testing.T) {
	afternoon := time.Date(2026, 11, 21, 16, 0, 0, 500, time.UTC) // a call by hand: the next night's is the nearest
	nightly := Done{Due: Due{at3, day}, At: afternoon}
	for _, c := range []struct {
		last   Done
		key    string
		period time.Duration
		want   error
	}{
		{nightly, at3, day, ErrDone},
		{nightly, "2026-11-21T03:00:00Z", day, ErrPassed},
		{nightly, "2026-11-23T03:00:00Z", day, nil},
		{nightly, "2026-11-21T17:00:00Z", time.Hour, nil},
		{nightly, "2026-11-22T02:00:00Z", time.Hour, nil},
		{nightly, at3, time.Hour, ErrDone},
		{nightly, "2026-11-21T16:00:00Z", time.Hour, ErrPassed},
		{nightly, "2026-11-21T17:00:00Z", 0, ErrPassed}, // by hand
		{Done{Due: Due{at3, 0}, At: afternoon}, "2026-11-21T17:00:00Z", time.Hour, ErrPassed},
		{Done{Due: Due{at3, time.Hour}, At: afternoon.Add(day)}, "2026-11-22T04:00:00Z", day, nil}, // it took hours
		{Done{Due: Due{"2026-11-21T17:00:00Z", time.Hour}, At: afternoon.Add(time.Hour)}, "2026-11-21T03:00:00Z", day, ErrPassed},
		{Done{}, at3, day, nil},
	} {
		err := c.last.Forbids(Due{c.key, c.period})
		assert.ErrorIs(t, err, c.want, "%v every %v after %v", c.key, c.period, c.last)
		assert.Equal(t, c.want == nil, err == nil, "%v every %v after %v: %v", c.key, c.period, c.last, err)
	}
}

func TestARecordSaysItsPeriodAndOneWithoutIsRead(t *testing.T) {
	for _, due := range []Due{{at3, day}, {at3, 90 * time.Minute}, {"v1", 0}} {
		write := record("nightly", 7, due, "me")
		said := write.Set[2].Value.(string)
		d, err := decodeDone(Row{Writer: said})
		require.NoError(t, err, said)
		assert.Equal(t, due, d.Due)
	}
	for said, want := range map[string]Due{`{"done":"v1"}`: {"v1", 0}, `{"done":"` + at3 + `","by":"me"}`: {at3, 0}} {
		d, err := decodeDone(Row{Writer: said})
		require.NoError(t, err, said)
		assert.Equal(t, want, d.Due)
	}
}
