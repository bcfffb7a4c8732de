package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/wait"
)

// contender competes for the locks of a Mutex, a Set, a Semaphore or a Once.
type contender struct {
	what    string // its description in errors
	config  options.Config
	err     error // what is wrong with the arguments; every method returns it if it is set
	table   table.Table
	spanner table.Spanner // for fences
	about   telemetry.Scope

	newer sync.Once     // guards the warning that a newer version holds a lock
	where func() string // the database and the table
	key   string        // identifies the queue within one table
}

// newContender returns a contender, and stores in it what is wrong with the arguments, if anything. If check is not
// nil, it is called with the options, and can refuse them.
func newContender(db *spanner.Client, tableName, what string, names []string, opts []Option, check func(*options.Config)) *contender {
	c := options.New(opts)
	c.Check(db, tableName, names...)
	if check != nil {
		check(&c)
	}
	s := &contender{what: what, config: c, key: fmt.Sprintf("%q", names)}
	s.table, s.spanner = s.config.Table(db, tableName)
	s.about = c.Telemetry(tableName, names...)
	if err := c.Err(); err != nil {
		s.err = s.wrap("new", err)
		return s
	}
	database := db.DatabaseName
	if c.Store != nil || c.Process != "" {
		database = func() string { return c.Process }
	}
	s.where = func() string { return database() + " " + table.Canonical(tableName) }
	return s
}

// queue returns the key of the contender's queue in this process.
func (s *contender) queue() string { return s.where() + " " + s.key }

func (s *contender) wrap(step string, err error) error {
	if hint := loop.Hint(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if step == "lock" { // the package's name already says this
		return fmt.Errorf("lock: %s: %w", s.what, err)
	}
	return fmt.Errorf("lock: %s: %s: %w", step, s.what, err)
}

// fence returns the fence for the named locks, which are held under the token.
func (s *contender) fence(token spindle.Token, names ...string) fence.Fence {
	return fence.Fence{Table: s.spanner, Names: names, Token: table.Token(token), About: s.about,
		Wrap: func(err error) error { return s.wrap("fence", err) }}
}

// heldByNewer reports whether err means that a newer version of this program wrote the rows of a lock. Such a lock
// counts as held, so during a rolling update, older processes wait until it is released. The first such error is
// logged.
func (s *contender) heldByNewer(err error) bool {
	if !errors.Is(err, table.ErrNewer) || permanent(err) {
		return false
	}
	s.newer.Do(func() {
		s.config.Log.Warn("waiting for a lock that is held by a newer version of this program; update this program", "table", s.about.Table, "err", err)
	})
	return true
}

// patience returns how long one caller keeps trying while Spanner refuses its requests.
func (s *contender) patience() *elect.Patience {
	return &elect.Patience{Clock: s.config.Clock, Lease: s.config.Lease}
}

// persist repeats a read until it succeeds, ctx ends, or another attempt would not help. If try is set, it makes only
// one attempt.
func (s *contender) persist(ctx context.Context, patience *elect.Patience, try bool, read func(context.Context) error) error {
	for retry := (elect.Backoff{Max: wait.MaxPause(&s.config)}); ; {
		attempt, cancel := context.WithTimeout(ctx, elect.Attempt(s.config.Lease))
		err := read(attempt)
		cancel()
		if err == nil {
			patience.Passed("read")
			return nil
		}
		if try || patience.Ends("read", err) || errors.Is(err, table.ErrNewer) {
			return err
		}
		if elect.Sleep(ctx, s.config.Clock, retry.Pause(s.config.Clock)); ctx.Err() != nil {
			return err // which says more than the error of another attempt would
		}
	}
}
