package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Config is what the flags of serve say.
type Config struct {
	*connect.Database
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
	feed    *feed
	metrics *metrics
	open    func() // records that a page is open
	opened  chan struct{}

	mu       sync.Mutex
	history  history
	begun    time.Time
	looked   time.Time // when the last successful read began, by the local clock
	pace     model.Pace
	away     error  // of the last read, if it failed
	snapshot []byte // of version
	version  int
}

// New returns a server that has not read the table yet. It returns an error if a pattern in Exclude is wrong.
func New(c Config, locks table.Table) (*Server, error) {
	exclude, err := matching(c.Exclude)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, locks: locks, exclude: exclude, feed: newFeed(), opened: make(chan struct{}), begun: time.Now(), version: -1}
	s.history = history{expected: map[string]bool{}, skips: !c.Released}
	for _, name := range c.Expect {
		s.history.expected[name] = true
	}
	s.pace = model.Pace{Every: c.Every, Longest: time.Minute, Share: 10}
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
		s.mu.Lock()
		pause := s.pace.Pause
		s.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Look reads the table once, and sends the changes to all pages.
func (s *Server) Look(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	s.mu.Lock()
	names := s.history.names()
	s.mu.Unlock()
	began := time.Now()
	found, at, err := operator.ListWith(looking, s.locks, s.Prefix, s.Released, names...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(began)
	s.metrics.looked(took, err)
	s.mu.Lock()
	was := s.away
	if s.away = err; err == nil {
		s.looked = began
		s.pace.Took(took)
		touched, forgotten := s.history.see(s.included(found), at)
		s.feed.add(frame("look", lookOf(at, s.pace.Next(), touched, forgotten)))
	} else {
		s.pace.Failed(took)
		s.feed.add(frame("away", s.awayFrame()))
	}
	s.mu.Unlock()
	switch {
	case was == nil && err != nil:
		terminal.Complain("can't read the locks, will try again: %v", s.Explain(err))
	case was != nil && err == nil:
		terminal.Complain("the locks can be read again")
	}
	return err
}

// included removes the locks that Exclude matches, except those that are expected.
func (s *Server) included(found []operator.Listing) []operator.Listing {
	return slices.DeleteFunc(found, func(l operator.Listing) bool { return s.exclude(l.Name) && !s.history.expected[l.Name] })
}

// old returns how long ago the last successful read began.
func (s *Server) old() time.Duration {
	if s.looked.IsZero() {
		return 0
	}
	return time.Since(s.looked)
}

// awayFrame returns a frame that explains why the table can't be read, or nil if the last read succeeded.
func (s *Server) awayFrame() *awayFrame {
	if s.away == nil {
		return nil
	}
	since := s.looked
	if since.IsZero() {
		since = s.begun
	}
	return &awayFrame{For: time.Since(since).Milliseconds(), Error: s.Explain(s.away).Error()}
}

// whole returns a snapshot of all shown locks as a frame, together with its version. It encodes each version only once,
// so all pages that ask for a snapshot between two reads get the same frame.
func (s *Server) whole() ([]byte, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.feed.now()
	if s.version != version {
		f := snapshotFrame{At: millis(s.history.at), Next: s.pace.Next().Milliseconds(), Database: s.Path, Table: s.Table,
			Prefix: s.Prefix, Released: s.Released, Locks: []lockWire{}, Away: s.awayFrame()}
		for _, k := range s.history.locks {
			if k.shown {
				f.Locks = append(f.Locks, k.wire(len(k.terms)))
			}
		}
		slices.SortFunc(f.Locks, func(a, b lockWire) int { return cmp.Compare(a.ID, b.ID) })
		s.snapshot, s.version = frame("snapshot", f), version
	}
	return s.snapshot, s.version
}

// stale returns nil if the last successful read of the table is recent enough. Otherwise, it returns an error that says
// how long ago that read was, and why later reads failed. A single failed read does not make the data stale.
func (s *Server) stale() error {
	old := s.old().Round(time.Second)
	switch {
	case s.looked.IsZero() && s.away != nil:
		return fmt.Errorf("the table has not been read yet: %w", s.Explain(s.away))
	case s.looked.IsZero():
		return errors.New("the table has not been read yet")
	case old < 10*time.Second+3*s.pace.Next():
		return nil
	case s.away != nil:
		return fmt.Errorf("the table was last read %v ago: %w", old, s.Explain(s.away))
	}
	return fmt.Errorf("the table was last read %v ago; the database is not responding", old)
}
