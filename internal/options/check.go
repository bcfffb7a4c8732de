package options

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

const (
	minLease = 100 * time.Millisecond
	maxLease = table.MaxLease
	maxID    = table.MaxID
	maxValue = table.MaxValue
)

// SetLease implements WithLease.
func (c *Config) SetLease(d time.Duration) { setLease(c, fmt.Sprintf("WithLease(%v)", d), d) }

// SetDuration implements WithDuration.
func (c *Config) SetDuration(ms int64) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	if c.Require(ms >= -most && ms <= most, "WithDuration(%d): the lease is in milliseconds, and must be positive and at most %v", ms, maxLease) {
		setLease(c, fmt.Sprintf("WithDuration(%d)", ms), time.Duration(ms)*time.Millisecond)
	}
}

func setLease(c *Config, given string, d time.Duration) {
	switch {
	case d > 0 && d < time.Millisecond:
		c.Refuse("%s: the lease must be at least %v; a bare number is in nanoseconds, so use WithLease(%d*time.Millisecond) or WithDuration(%d) for milliseconds", given, minLease, int64(d), int64(d))
	case d < minLease:
		c.Refuse("%s: the lease must be at least %v", given, minLease)
	case d > maxLease:
		c.Refuse("%s: the lease is %v, but must be at most %v", given, d, maxLease)
	default:
		c.Lease = d
	}
}

// SetHeartbeat implements WithHeartbeat.
func (c *Config) SetHeartbeat(d time.Duration) { setInterval(c, "WithHeartbeat", &c.Heartbeat, d) }

// SetPoll implements WithPoll.
func (c *Config) SetPoll(d time.Duration) { setInterval(c, "WithPoll", &c.Poll, d) }

func setInterval(c *Config, what string, at *time.Duration, d time.Duration) {
	if c.Require(d >= time.Millisecond, "%s(%v): the interval must be at least 1ms; a bare number is in nanoseconds", what, d) {
		*at = d
	}
}

// SetLockDelay implements WithLockDelay.
func (c *Config) SetLockDelay(d time.Duration) {
	if c.Require(d >= 0 && d <= maxLease, "WithLockDelay(%v) must be between 0 and %v", d, maxLease) {
		c.LockDelay = d
	}
}

// SetID implements WithID.
func (c *Config) SetID(id string) {
	_, member := table.MemberOf(id)
	if c.Require(id != "" && len(id) <= maxID && utf8.ValidString(id), "WithID(%.40q): the id must be valid UTF-8 of 1 to %d bytes; this one has %d bytes", id, maxID, len(id)) &&
		c.Require(!strings.ContainsFunc(id, table.Unprintable), "WithID(%q): control characters, line separators and bidirectional marks are not allowed in an id", id) &&
		c.Require(!member, "WithID(%q): ids of this form are reserved for the members of groups", id) {
		c.ID = id
	}
}

// SetValue implements WithValue.
func (c *Config) SetValue(value string) {
	if c.Require(len(value) <= maxValue && utf8.ValidString(value), "WithValue(%.40q): the value must be valid UTF-8 of at most %d bytes; this one has %d bytes", value, maxValue, len(value)) {
		c.Value = value
	}
}

// SetPriority implements WithPriority.
func (c *Config) SetPriority(n int) {
	if c.Require(n >= 0 && n <= table.MaxRank, "WithPriority(%d) must be from 0 to %[2]d; the default is %[2]d", n, table.MaxRank) {
		c.Rank = table.MaxRank - n
	}
}

// checkTogether refuses options that contradict each other.
func (c *Config) checkTogether() {
	c.Require(!c.Reclaim || c.ID != "", "WithReclaim() needs WithID, because the default id is different in every process")
	c.Require(c.Identity <= 0 || c.ID != "", "WithIdentity(%v) needs WithID, because the default id is different in every process", c.Identity)
	c.Require(!c.KeepOnReturn || c.Lead != nil, "WithKeepOnReturn() needs WithLeader, because it takes effect when the leader function returns")
	if c.wrong != nil {
		return // the values below may be defaults rather than the caller's
	}
	c.Require(c.Heartbeat <= c.Lease-c.Lease/10, "WithHeartbeat(%v) must be at most nine tenths of the lease of %v; the default is a third of the lease", c.Heartbeat, c.Lease)
	heartbeat := cmp.Or(c.Heartbeat, c.Lease/3)
	c.Require(c.Stall == 0 || c.Stall >= heartbeat, "WithStall(%v) must be at least the heartbeat interval of %v", c.Stall, heartbeat)
	c.Require(c.Poll < c.Lease, "WithPoll(%v) must be shorter than the lease of %v; about a third of the lease is recommended", c.Poll, c.Lease)
}

// Check refuses invalid values of a constructor's other arguments.
func (c *Config) Check(db *spanner.Client, tableName string, names ...string) {
	c.Require(db != nil || c.Store != nil, "the Spanner client is nil: create one with spindle.Open")
	c.RefuseIf(table.CheckTable(tableName))
	for _, name := range names {
		c.RefuseIf(table.CheckName(name))
	}
}

// faults are errors in the arguments.
type faults struct{ wrong []error }

// Refuse records an error in the arguments.
func (f *faults) Refuse(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Errorf(format, args...))
}

// Require records an error unless ok is true, and returns ok.
func (f *faults) Require(ok bool, format string, args ...any) bool {
	if !ok {
		f.Refuse(format, args...)
	}
	return ok
}

// RefuseIf records err, unless it is nil.
func (f *faults) RefuseIf(err error) { f.wrong = append(f.wrong, err) }

// Err returns all the recorded errors, or nil.
func (f *faults) Err() error { return errors.Join(f.wrong...) }
