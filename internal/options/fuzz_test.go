package options

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// Options that are accepted are within bounds, so no sum of times overflows, and a term has time for a heartbeat.
func FuzzOptions(f *testing.F) {
	f.Add(int64(5000), int64(0), int64(0), int64(0), "id", "value")
	f.Add(int64(math.MaxInt64), int64(1), int64(-1), int64(math.MaxInt64), "", "\xff")
	for _, id := range []string{"a\x00", "a\x1b[31m", "a\nb", "a\u202eb"} {
		f.Add(int64(5000), int64(time.Second), int64(time.Second), int64(0), id, "{\n}")
	}
	f.Add(int64(100), int64(90_000_000), int64(99_000_000), int64(math.MinInt64), "a", "")
	f.Fuzz(func(t *testing.T, ms, heartbeat, poll, delay int64, id, value string) {
		c := New([]Option{func(c *Config) {
			c.SetDuration(ms)
			c.SetHeartbeat(time.Duration(heartbeat))
			c.SetPoll(time.Duration(poll))
			c.SetLockDelay(time.Duration(delay))
			c.SetID(id)
			c.SetValue(value)
		}})
		if c.Err() != nil {
			return
		}
		if c.Lease < minLease || c.Lease > maxLease || c.Lease != time.Duration(ms)*time.Millisecond {
			t.Errorf("lease %v of %d ms was accepted", c.Lease, ms)
		}
		if c.Heartbeat <= 0 || c.Heartbeat > c.Lease*9/10 || c.Poll < 0 || c.Poll >= c.Lease || c.LockDelay < 0 || c.LockDelay > maxLease {
			t.Errorf("%+v was accepted", c)
		}
		if strings.ContainsFunc(id, unicode.IsControl) || strings.ContainsAny(id, "\u2028\u202e") {
			t.Errorf("id %q was accepted, and acts on a terminal or breaks a line", id)
		}
		if id == "" || !utf8.ValidString(id) || !utf8.ValidString(value) {
			t.Errorf("%q, %q were accepted", id, value)
		}
	})
}
