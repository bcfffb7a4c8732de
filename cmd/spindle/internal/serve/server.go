package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Config has the values of the flags of serve.
type Config struct {
	*database.Database
	Listen string
	Hosts  []string

	Prefix   string   // only locks whose names begin with it are shown
	Expect   []string // locks that should always be held; they are shown and have metrics even without a row
	Exclude  []string // patterns of names of locks that are not shown, unless they are expected
	Released bool     // released locks are also read and shown

	Every time.Duration // the shortest pause between two reads
}

// A Server reads a lock table regularly, and shows what it has read.
type Server struct {
	Config
	locks   table.Table
	exclude func(name string) bool
	metrics *metrics
	open    func() // records that a page is open
	opened  chan struct{}

	mu sync.Mutex // guards the rest
	reading
	history history
	feed    feed
}

// A reading says how recent the data is.
type reading struct {
	begun  time.Time // when the server was created
	looked time.Time // when the last successful read began, by the local clock
	pace   model.Pace
	away   error // why the last read failed
}

// New returns a server that has not read the table yet. It returns an error if a pattern in Exclude is empty.
func New(c Config, locks table.Table) (*Server, error) {
	exclude, err := matching(c.Exclude)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, locks: locks, exclude: exclude, opened: make(chan struct{}), feed: feed{more: make(chan struct{})}}
	s.reading = reading{begun: time.Now(), pace: model.Pace{Every: c.Every, Longest: time.Minute, Share: 10}}
	s.history = history{expected: map[string]bool{}, skips: !c.Released}
	for _, name := range c.Expect {
		s.history.expected[name] = true
	}
	s.open = sync.OnceFunc(func() { close(s.opened) })
	s.metrics = newMetrics(s)
	return s, nil
}

// Opened returns a channel that is closed once a page has been opened.
func (s *Server) Opened() <-chan struct{} { return s.opened }

// Watch reads the table repeatedly until ctx ends. There is never more than one read at a time.
func (s *Server) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.Look(ctx)
		select {
		case <-time.After(s.pace.Pause): // only Look changes it
		case <-ctx.Done():
		}
	}
}

// Look reads the table once, and sends the changes to all pages. If the read fails, the error tells users what to do.
func (s *Server) Look(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	began := time.Now()
	found, at, err := operator.ListWith(looking, s.locks, s.Prefix, s.Released, s.history.names()...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(began)
	err = s.Explain(err)
	s.mu.Lock()
	was := s.away
	if s.away = err; err == nil {
		s.looked = began
		s.pace.Took(took)
		s.metrics.reads.Observe(took.Seconds())
		found = slices.DeleteFunc(found, func(l operator.Listing) bool { return s.exclude(l.Name) && !s.history.expected[l.Name] })
		touched, forgotten := s.history.see(found, at)
		s.feed.add(frame("look", lookOf(at, s.pace.Next(), touched, forgotten)))
	} else {
		s.pace.Failed(took)
		s.metrics.failures.Inc()
		s.feed.add(frame("away", s.awayFrame()))
	}
	s.mu.Unlock()
	switch {
	case was == nil && err != nil:
		terminal.Complain("can't read the locks, will try again: %v", err)
	case was != nil && err == nil:
		terminal.Complain("the locks can be read again")
	}
	return err
}

// old returns how long ago the last successful read began.
func (r *reading) old() time.Duration {
	if r.looked.IsZero() {
		return 0
	}
	return time.Since(r.looked)
}

// awayFrame returns a frame that explains why the table can't be read, or nil if the last read succeeded.
func (r *reading) awayFrame() *awayFrame {
	if r.away == nil {
		return nil
	}
	since := r.looked
	if since.IsZero() {
		since = r.begun
	}
	return &awayFrame{For: time.Since(since).Milliseconds(), Error: r.away.Error()}
}

// stale returns nil if the last successful read of the table is recent enough. Otherwise, it returns an error that says
// how long ago that read was, and why the last read failed. A single failed read usually does not make the data stale.
func (r *reading) stale() error {
	old := r.old().Round(time.Second)
	text := fmt.Sprintf("the table was last read %v ago", old)
	switch {
	case r.looked.IsZero():
		text = "the table has not been read yet"
	case old < 10*time.Second+3*r.pace.Next():
		return nil
	case r.away == nil:
		text += "; the database is not responding"
	}
	if r.away != nil {
		return fmt.Errorf("%s: %w", text, r.away)
	}
	return errors.New(text)
}
