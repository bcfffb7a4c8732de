package options

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first and the last value that an option documents are accepted and take effect, and the values next to them are refused.
func TestEachOptionAcceptsExactlyTheDocumentedValues(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	lead := func(c *Config) { c.Lead = func(context.Context, Lead) {} }
	lease := func(d time.Duration) Option { return func(c *Config) { c.SetLease(d) } }
	millis := func(n int64) Option { return func(c *Config) { c.SetDuration(n) } }
	beat := func(d time.Duration) Option { return func(c *Config) { c.SetHeartbeat(d) } }
	poll := func(d time.Duration) Option { return func(c *Config) { c.SetPoll(d) } }
	delay := func(d time.Duration) Option { return func(c *Config) { c.SetLockDelay(d) } }
	id := func(id string) Option { return func(c *Config) { c.SetID(id) } }
	value := func(v string) Option { return func(c *Config) { c.SetValue(v) } }
	priority := func(n int) Option { return func(c *Config) { c.SetPriority(n) } }
	stall := func(d time.Duration) Option { return func(c *Config) { c.Stall = d } }
	reclaim := func(c *Config) { c.Reclaim = true }
	keep := func(c *Config) { c.KeepOnReturn = true }
	identity := func(d time.Duration) Option { return func(c *Config) { c.Identity = d } }
	type opts = []Option
	for _, c := range []struct {
		names string // of the option that an error has to name
		given opts
		set   func(Config) any
		to    any // nil: refused
	}{
		{"WithLease", opts{lease(100 * ms)}, func(c Config) any { return c.Lease }, 100 * ms},
		{"WithLease", opts{lease(100*ms - 1)}, nil, nil},
		{"WithLease", opts{lease(ms)}, nil, nil},
		{"WithLease", opts{lease(ms - 1)}, nil, nil},
		{"WithLease", opts{lease(0)}, nil, nil},
		{"WithLease", opts{lease(-s)}, nil, nil},
		{"WithLease", opts{lease(24 * time.Hour)}, func(c Config) any { return c.Lease }, 24 * time.Hour},
		{"WithLease", opts{lease(24*time.Hour + 1)}, nil, nil},
		{"WithDuration", opts{millis(100)}, func(c Config) any { return c.Lease }, 100 * ms},
		{"WithDuration", opts{millis(99)}, nil, nil},
		{"WithDuration", opts{millis(86_400_000)}, func(c Config) any { return c.Lease }, 24 * time.Hour},
		{"WithDuration", opts{millis(86_400_001)}, nil, nil},
		{"WithDuration", opts{millis(math.MaxInt64)}, nil, nil},
		{"WithDuration", opts{millis(math.MinInt64)}, nil, nil},
		{"WithDuration", opts{millis(math.MinInt64 + 5000)}, nil, nil}, // as nanoseconds, it would wrap round to five seconds
		{"WithHeartbeat", opts{beat(ms)}, func(c Config) any { return c.Heartbeat }, ms},
		{"WithHeartbeat", opts{beat(ms - 1)}, nil, nil},
		{"WithHeartbeat", opts{lease(10 * s), beat(9 * s)}, func(c Config) any { return c.Heartbeat }, 9 * s},
		{"WithHeartbeat", opts{beat(9*s + 1), lease(10 * s)}, nil, nil},
		{"WithHeartbeat", opts{beat(20 * s), lease(time.Minute)}, func(c Config) any { return c.Heartbeat }, 20 * s},
		{"", opts{lease(9 * s)}, func(c Config) any { return c.Heartbeat }, 3 * s},
		{"WithPoll", opts{poll(ms)}, func(c Config) any { return c.Poll }, ms},
		{"WithPoll", opts{poll(ms - 1)}, nil, nil},
		{"WithPoll", opts{lease(5 * s), poll(5*s - 1)}, func(c Config) any { return c.Poll }, 5*s - 1},
		{"WithPoll", opts{poll(5 * s), lease(5 * s)}, nil, nil},
		{"WithLockDelay", opts{delay(0)}, func(c Config) any { return c.LockDelay }, 0 * s},
		{"WithLockDelay", opts{delay(-1)}, nil, nil},
		{"WithLockDelay", opts{delay(24 * time.Hour)}, func(c Config) any { return c.LockDelay }, 24 * time.Hour},
		{"WithLockDelay", opts{delay(24*time.Hour + 1)}, nil, nil},
		{"WithID", opts{id("a")}, func(c Config) any { return c.ID }, "a"},
		{"WithID", opts{id("")}, nil, nil},
		{"WithID", opts{id(strings.Repeat("é", 512))}, func(c Config) any { return c.ID }, strings.Repeat("é", 512)},
		{"WithID", opts{id(strings.Repeat("é", 512) + "a")}, nil, nil},
		{"WithID", opts{id("a\xff")}, nil, nil},
		{"WithID", opts{id("a\nb")}, nil, nil},
		{"WithValue", opts{value("")}, func(c Config) any { return c.Value }, ""},
		{"WithValue", opts{value(strings.Repeat("a", 65536))}, func(c Config) any { return len(c.Value) }, 65536},
		{"WithValue", opts{value(strings.Repeat("a", 65537))}, nil, nil},
		{"WithValue", opts{value("\xff")}, nil, nil},
		{"WithPriority", opts{priority(0)}, func(c Config) any { return c.Rank }, 9},
		{"WithPriority", opts{priority(9)}, func(c Config) any { return c.Rank }, 0},
		{"WithPriority", opts{priority(-1)}, nil, nil},
		{"WithPriority", opts{priority(10)}, nil, nil},
		{"WithStall", opts{lead, lease(9 * s), stall(3 * s)}, func(c Config) any { return c.Stall }, 3 * s},
		{"WithStall", opts{lead, lease(9 * s), stall(3*s - 1)}, nil, nil},
		{"WithStall", opts{lead, stall(s), beat(s)}, func(c Config) any { return c.Stall }, s},
		{"WithStall", opts{lead, beat(s), stall(s - 1)}, nil, nil},
		{"WithReclaim", opts{reclaim, id("a")}, func(c Config) any { return c.Identity }, 10 * DefaultLease},
		{"WithReclaim", opts{reclaim, id("a"), lease(30 * s)}, func(c Config) any { return c.Identity }, 300 * s},
		{"WithReclaim", opts{reclaim}, nil, nil},
		{"", opts{lease(9 * s)}, func(c Config) any { return []time.Duration{c.InitialDelay, c.Identity} }, []time.Duration{3 * s, 0}},
		{"WithIdentity", opts{id("a"), identity(s)}, func(c Config) any { return c.Identity }, s},
		{"WithIdentity", opts{identity(s)}, nil, nil},
		{"WithIdentity", opts{identity(0)}, func(c Config) any { return c.Identity }, 0 * s},
		{"WithKeepOnReturn", opts{keep, lead}, func(c Config) any { return c.KeepOnReturn }, true},
		{"WithKeepOnReturn", opts{keep}, nil, nil},
	} {
		got := New(c.given)
		if c.to == nil {
			require.ErrorContains(t, got.Err(), c.names)
			assert.NotContains(t, got.Err().Error(), "\n", "one mistake, one error")
			continue
		}
		require.NoError(t, got.Err(), c.names)
		assert.Equal(t, c.to, c.set(got), c.names)
	}
}

// Without WithID, each Lock has an id of its own, even two in one process: two candidates with one id would disown each other's claims.
func TestTheDefaultIDIsDifferentEachTime(t *testing.T) {
	one, other := New[Option](nil), New[Option](nil)
	assert.NotEqual(t, one.ID, other.ID)
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(one.ID, fmt.Sprintf("%s/%d/", host, os.Getpid())), "%s: an operator finds the process by its id", one.ID)
	assert.Len(t, strings.Split(one.ID, "/"), 3)
}
