package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/spindle-lock/spindle/internal/table"
)

const (
	defaultLease = 10 * time.Second
	minLease     = 100 * time.Millisecond
	maxLease     = table.MaxLease
	maxID        = 1 << 10
	maxValue     = 64 << 10
)

// An Option changes one thing about a Lock. What is wrong with one is returned by Run.
type Option func(*config)

// config is what the options say. It does not change once New has returned.
type config struct {
	id        string
	lease     time.Duration
	heartbeat time.Duration
	poll      time.Duration
	lockDelay time.Duration
	value     string
	reclaim   bool
	lead      func(context.Context, Token)
	observe   func(Event)
	log       *slog.Logger

	wrong []error
}

func newConfig(opts []Option) config {
	c := config{lease: defaultLease, log: slog.Default()}
	for i, opt := range opts {
		if opt == nil {
			c.refuse("option %d is nil: leave it out", i+1)
			continue
		}
		opt(&c)
	}
	if c.id == "" {
		if c.reclaim {
			c.refuse("WithReclaim() needs WithID: the default id is never that of an earlier process")
		}
		c.id = defaultID()
	}
	if c.heartbeat == 0 {
		c.heartbeat = c.lease / 3
	}
	if c.poll == 0 {
		c.poll = c.lease / 3
	}
	if c.heartbeat > c.lease-c.lease/10 {
		c.refuse("WithHeartbeat(%v) must be shorter than the lease of %v, by a tenth at least: a third of it is usual", c.heartbeat, c.lease)
	}
	if c.poll >= c.lease {
		c.refuse("WithPoll(%v) must be shorter than the lease of %v: a third of it is usual", c.poll, c.lease)
	}
	return c
}

func (c *config) refuse(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

func (c config) err() error { return errors.Join(c.wrong...) }

func defaultID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

// WithDuration is WithLease in milliseconds.
func WithDuration(ms int64) Option {
	return func(c *config) {
		if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
			c.refuse("WithDuration(%d): the lease is given in milliseconds and is at most %v", ms, maxLease)
			return
		}
		c.setLease(fmt.Sprintf("WithDuration(%d)", ms), time.Duration(ms)*time.Millisecond)
	}
}

// WithLease sets how long the lock stays with a holder that was not heard of: the longest time that
// the lock can be without a holder after a crash. The default is 10 s; at least 100 ms and at most
// 24 h are allowed. Candidates with different leases can share a lock: the holder's counts.
func WithLease(d time.Duration) Option {
	return func(c *config) { c.setLease(fmt.Sprintf("WithLease(%v)", d), d) }
}

func (c *config) setLease(given string, d time.Duration) {
	switch {
	case d > 0 && d < time.Millisecond:
		c.refuse("%s: the lease must be at least %v; a bare number is in nanoseconds: WithLease(%d*time.Millisecond) or WithDuration(%d) may be meant", given, minLease, int64(d), int64(d))
	case d < minLease:
		c.refuse("%s: the lease must be at least %v", given, minLease)
	case d > maxLease:
		c.refuse("%s: the lease is %v and must be at most %v", given, d, maxLease)
	default:
		c.lease = d
	}
}

// WithHeartbeat sets how often a holder renews its lease: by default every third of it. It must be
// shorter than the lease by at least a tenth. A heartbeat that fails is tried again sooner.
func WithHeartbeat(d time.Duration) Option {
	return func(c *config) { c.setInterval("WithHeartbeat", &c.heartbeat, d) }
}

// WithPoll sets how often a candidate looks at the lock while another holds it: by default every
// third of the lease, less up to a tenth at random, and always when the lease can expire. It must be
// shorter than the lease.
func WithPoll(d time.Duration) Option {
	return func(c *config) { c.setInterval("WithPoll", &c.poll, d) }
}

func (c *config) setInterval(what string, at *time.Duration, d time.Duration) {
	if d < time.Millisecond {
		c.refuse("%s(%v) must be at least 1ms; a bare number is in nanoseconds", what, d)
		return
	}
	*at = d
}

// WithLockDelay leaves the lock free for d after a lease expired before it is claimed, for guarded
// work whose effects may arrive late and can't be fenced. A lock that was released is claimed at
// once. The default is 0; at most 24 h are allowed. Every candidate should be given the same.
func WithLockDelay(d time.Duration) Option {
	return func(c *config) {
		if d < 0 || d > maxLease {
			c.refuse("WithLockDelay(%v) must be between 0 and %v", d, maxLease)
			return
		}
		c.lockDelay = d
	}
}

// WithID sets the id that other candidates see as the holder's. The default is unique and readable:
// host, process id and a UUID.
func WithID(id string) Option {
	return func(c *config) {
		if id == "" || len(id) > maxID || !utf8.ValidString(id) {
			c.refuse("WithID(%.40q): the id must be 1 to %d bytes of UTF-8, and has %d bytes", id, maxID, len(id))
			return
		}
		c.id = id
	}
}

// WithReclaim lets a candidate take the lock at once when it finds it held under its own id, instead
// of waiting for that lease to expire. It is for ids that outlive the process, such as the name of a
// StatefulSet's pod, and needs WithID.
//
// The contract on the id: whenever a Lock of this name and id runs, every earlier one with that id
// has ended, and so has its guarded work. Two that run at the same time would take the lock from each
// other again and again, and both hold it for up to a heartbeat; only fenced writes stay safe then.
// A lock delay is not waited for.
func WithReclaim() Option {
	return func(c *config) { c.reclaim = true }
}

// WithValue publishes a value with each term, such as the address at which the leader is reached.
// Leader and observers see it. At most 64 KiB of UTF-8.
func WithValue(value string) Option {
	return func(c *config) {
		if len(value) > maxValue || !utf8.ValidString(value) {
			c.refuse("WithValue(%.40q): the value must be at most %d bytes of UTF-8, and has %d bytes", value, maxValue, len(value))
			return
		}
		c.value = value
	}
}

// WithLeader runs lead once in each term, in a goroutine of its own. Its ctx ends when the term does:
// the instant the lock is lost, its deadline passes without an acknowledged heartbeat, or Run's ctx
// ends; context.Cause tells which (ErrSuperseded, ErrExpired, or the cause of Run's ctx). On a machine
// that was suspended it ends at the next heartbeat after the resume; HasLock says false at once.
//
// The lock is not released, and not claimed again, before lead has returned. Returning early does not
// give the lock up: the term goes on without it. A panic of lead is not recovered.
func WithLeader(lead func(ctx context.Context, token Token)) Option {
	return func(c *config) {
		if lead == nil {
			c.refuse("WithLeader(nil): give it a function, or leave it out")
			return
		}
		c.lead = lead
	}
}

// WithObserver calls observe with each Event, one at a time and in order, in a goroutine of its own.
// However slow it is, it does not delay the lock.
func WithObserver(observe func(Event)) Option {
	return func(c *config) {
		if observe == nil {
			c.refuse("WithObserver(nil): give it a function, or leave it out")
			return
		}
		c.observe = observe
	}
}

// WithLogger sets where the lock logs: terms and problems that need a person at Info and above,
// everything that repeats at Debug. The default is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		if log == nil {
			c.refuse("WithLogger(nil): give it a logger; slog.New(slog.DiscardHandler) is silent")
			return
		}
		c.log = log
	}
}
