// Package options is what the options of the public packages say.
package options

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// DefaultLease is that of a lock whose options say nothing of it.
const DefaultLease = 10 * time.Second

// Config is what the options said. It does not change once it is complete.
type Config struct {
	ID        string
	Lease     time.Duration
	Heartbeat time.Duration
	Poll      time.Duration
	LockDelay time.Duration
	Value     string
	Reclaim   bool
	Lead      func(context.Context, table.Token)
	Observe   func(elect.Event)
	Log       *slog.Logger

	Store table.Store // nil: Spanner's. Tests have others.
	Clock elect.Clock // the machine's, but in tests

	wrong []error
}

// New applies the options and fills in the defaults.
func New[O ~func(*Config)](opts []O) Config {
	c := Config{Lease: DefaultLease, Log: slog.Default(), Clock: elect.SystemClock{}}
	for i, opt := range opts {
		if opt == nil {
			c.Refuse("option %d is nil: leave it out", i+1)
			continue
		}
		opt(&c)
	}
	c.complete()
	return c
}

func (c *Config) complete() {
	if c.ID == "" {
		if c.Reclaim {
			c.Refuse("WithReclaim() needs WithID: the default id is never that of an earlier process")
		}
		c.ID = defaultID()
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.Lease / 3
	}
	if c.Poll == 0 {
		c.Poll = c.Lease / 3
	}
	if c.Heartbeat > c.Lease-c.Lease/10 {
		c.Refuse("WithHeartbeat(%v) must be shorter than the lease of %v, by a tenth at least: a third of it is usual", c.Heartbeat, c.Lease)
	}
	if c.Poll >= c.Lease {
		c.Refuse("WithPoll(%v) must be shorter than the lease of %v: a third of it is usual", c.Poll, c.Lease)
	}
}

func defaultID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

// Refuse notes something that is wrong.
func (c *Config) Refuse(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

// Check refuses what is wrong with the other arguments of a constructor.
func (c *Config) Check(db *spanner.Client, tableName string, names ...string) {
	if db == nil && c.Store == nil {
		c.Refuse("the Spanner client is nil: make one with spanner.NewClient")
	}
	c.wrong = append(c.wrong, table.CheckTable(tableName))
	for _, name := range names {
		c.wrong = append(c.wrong, table.CheckName(name))
	}
}

// Err is all that is wrong, or nil.
func (c *Config) Err() error { return errors.Join(c.wrong...) }

// Table returns the lock table, and what makes its fences.
func (c *Config) Table(db *spanner.Client, name string) (table.Table, table.Spanner) {
	s := table.Spanner{DB: db, Table: name}
	if c.Store != nil {
		return table.Table{Store: c.Store}, s
	}
	return table.Table{Store: s}, s
}

// Candidate returns a candidate for the names as the options say.
func (c *Config) Candidate(t table.Table, names ...string) elect.Candidate {
	return elect.Candidate{
		Table: t, Clock: c.Clock, Names: names, ID: c.ID,
		Promise:   table.Promise{Lease: c.Lease, Value: c.Value},
		LockDelay: c.LockDelay, Reclaim: c.Reclaim,
	}
}
