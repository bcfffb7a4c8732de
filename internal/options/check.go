package options

import (
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
func (c *Config) SetLease(d time.Duration) { c.setLease(fmt.Sprintf("WithLease(%v)", d), d) }

// SetDuration implements WithDuration.
func (c *Config) SetDuration(ms int64) {
	if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
		c.Refuse("WithDuration(%d): the lease, in milliseconds, must be at most %v", ms, maxLease)
		return
	}
	c.setLease(fmt.Sprintf("WithDuration(%d)", ms), time.Duration(ms)*time.Millisecond)
}

func (c *Config) setLease(given string, d time.Duration) {
	switch {
	case d > 0 && d < time.Millisecond:
		c.Refuse("%s: the lease must be at least %v; a bare number is in nanoseconds, so use WithLease(%d*time.Millisecond) or WithDuration(%d) for milliseconds", given, minLease, int64(d), int64(d))
	case d < minLease:
		c.Refuse("%s: the lease must be at least %v", given, minLease)
	case d > maxLease:
		c.Refuse("%s: the lease is %v and must be at most %v", given, d, maxLease)
	default:
		c.Lease = d
	}
}

// SetHeartbeat implements WithHeartbeat.
func (c *Config) SetHeartbeat(d time.Duration) { c.setInterval("WithHeartbeat", &c.Heartbeat, d) }

// SetPoll implements WithPoll.
func (c *Config) SetPoll(d time.Duration) { c.setInterval("WithPoll", &c.Poll, d) }

func (c *Config) setInterval(what string, at *time.Duration, d time.Duration) {
	if d < time.Millisecond {
		c.Refuse("%s(%v): the interval must be at least 1ms; a bare number is in nanoseconds", what, d)
		return
	}
	*at = d
}

// SetLockDelay implements WithLockDelay.
func (c *Config) SetLockDelay(d time.Duration) {
	if d < 0 || d > maxLease {
		c.Refuse("WithLockDelay(%v) must be between 0 and %v", d, maxLease)
		return
	}
	c.LockDelay = d
}

// SetID implements WithID.
func (c *Config) SetID(id string) {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		c.Refuse("WithID(%.40q): the id must be valid UTF-8 of 1 to %d bytes; this one has %d bytes", id, maxID, len(id))
		return
	}
	if strings.ContainsFunc(id, table.Unprintable) {
		c.Refuse("WithID(%q): control characters, line separators and bidirectional marks are not allowed in an id", id)
		return
	}
	if _, ok := table.MemberOf(id); ok {
		c.Refuse("WithID(%q): ids of this form are reserved for the members of groups", id)
		return
	}
	c.ID = id
}

// SetValue implements WithValue.
func (c *Config) SetValue(value string) {
	if len(value) > maxValue || !utf8.ValidString(value) {
		c.Refuse("WithValue(%.40q): the value must be valid UTF-8 of at most %d bytes; this one has %d bytes", value, maxValue, len(value))
		return
	}
	c.Value = value
}

// SetPriority implements WithPriority.
func (c *Config) SetPriority(n int) {
	if n < 0 || n > table.MaxRank {
		c.Refuse("WithPriority(%d) must be from 0 to %[2]d; the default is %[2]d", n, table.MaxRank)
		return
	}
	c.Rank = table.MaxRank - n
}

// checkTogether refuses options that contradict each other.
func (c *Config) checkTogether() {
	if c.Reclaim && c.ID == "" {
		c.Refuse("WithReclaim() needs WithID, because the default id is different in every process")
	}
	if c.Identity > 0 && c.ID == "" {
		c.Refuse("WithIdentity(%v) needs WithID, because the default id is different in every process", c.Identity)
	}
	if c.KeepOnReturn && c.Lead == nil {
		c.Refuse("WithKeepOnReturn() needs WithLeader, because it is about the return of the leader function")
	}
	if c.wrong != nil {
		return // the values below may be defaults rather than the caller's
	}
	if c.Heartbeat > c.Lease-c.Lease/10 {
		c.Refuse("WithHeartbeat(%v) must be at most nine tenths of the lease of %v; the default is a third of the lease", c.Heartbeat, c.Lease)
	}
	if c.Poll >= c.Lease {
		c.Refuse("WithPoll(%v) must be shorter than the lease of %v; about a third of the lease is recommended", c.Poll, c.Lease)
	}
}

// RefuseForGroup refuses the options of package group.
func (c *Config) RefuseForGroup() {
	for _, option := range c.ForGroup {
		c.Refuse("%s is for group.New and can't be used here", option)
	}
}

// Check refuses invalid values of a constructor's other arguments.
func (c *Config) Check(db *spanner.Client, tableName string, names ...string) {
	if db == nil && c.Store == nil {
		c.Refuse("the Spanner client is nil: create one with spanner.NewClient")
	}
	c.RefuseIf(table.CheckTable(tableName))
	for _, name := range names {
		c.RefuseIf(table.CheckName(name))
	}
}

// Refuse records an error in the arguments.
func (c *Config) Refuse(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

// RefuseIf records err, unless it is nil.
func (c *Config) RefuseIf(err error) { c.wrong = append(c.wrong, err) }

// Err returns all the recorded errors, or nil.
func (c *Config) Err() error { return errors.Join(c.wrong...) }
