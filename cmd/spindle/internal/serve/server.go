package serve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Config says what is shown, and how.
type Config struct {
	Locks    table.Table
	Prefix   string // of the names of the locks that are shown
	Database string
	Table    string

	PartitionMetrics bool // each partition of a group has metrics of its own, as a lock has

	Every   time.Duration // between the end of a look and the next
	Timeout time.Duration // of a look

	Explain func(error) error // what is shown of an error of the database
	Failing func(error)       // called at the first look that fails, and, with nil, at the first one that succeeds again
}

// A Server looks at a lock table, and shows what it saw.
type Server struct {
	Config
	feed    *feed
	metrics *metrics
	open    func() // says that a page is open
	opened  chan struct{}

	mu       sync.Mutex
	history  history
	begun    time.Time
	looked   time.Time     // when the last look that succeeded began, by the local clock
	took     time.Duration // how long that look took
	away     error         // of the last look, if it failed
	snapshot []byte        // of version
	version  int
}

// New returns a server that has not looked yet.
func New(c Config) *Server {
	s := &Server{Config: c, feed: newFeed(), opened: make(chan struct{}), begun: time.Now(), version: -1}
	s.open = sync.OnceFunc(func() { close(s.opened) })
	s.metrics = newMetrics(s)
	return s
}

// Opened is closed once a page has been opened.
func (s *Server) Opened() <-chan struct{} { return s.opened }

// Watch looks until ctx ends: one read of the table at a time, however many pages are open.
func (s *Server) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.Look(ctx)
		select {
		case <-time.After(s.Every):
		case <-ctx.Done():
		}
	}
}

// Look reads the table once, and tells all pages what it saw.
func (s *Server) Look(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	began := time.Now()
	found, at, err := s.Locks.List(looking, s.Prefix, true)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.metrics.looked(time.Since(began), err)
	s.mu.Lock()
	was := s.away
	if s.away = err; err == nil {
		s.looked, s.took = began, time.Since(began)
		touched, forgotten := s.history.see(found, at)
		s.feed.add(frame("look", lookOf(at, touched, forgotten)))
	} else {
		s.feed.add(frame("away", s.awayFrame()))
	}
	s.mu.Unlock()
	if (was == nil) != (err == nil) && s.Failing != nil {
		s.Failing(err)
	}
	return err
}

// awayFrame says why the table can't be read.
func (s *Server) awayFrame() *awayFrame {
	if s.away == nil {
		return nil
	}
	since := s.looked
	if since.IsZero() {
		since = s.begun
	}
	return &awayFrame{For: time.Since(since).Milliseconds(), Error: s.explain(s.away).Error()}
}

// whole returns all that is known as a frame, and its version. All pages that ask between two looks share the frame.
func (s *Server) whole() ([]byte, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.feed.now()
	if s.version != version {
		f := snapshotFrame{At: millis(s.history.at), Every: s.Every.Milliseconds(), Database: s.Database, Table: s.Table,
			Prefix: s.Prefix, Locks: []lockWire{}, Away: s.awayFrame()}
		for _, k := range s.history.locks {
			f.Locks = append(f.Locks, k.wire(len(k.terms)))
		}
		slices.SortFunc(f.Locks, func(a, b lockWire) int { return cmp.Compare(a.ID, b.ID) })
		s.snapshot, s.version = frame("snapshot", f), version
	}
	return s.snapshot, s.version
}

// stale returns nil while what is known is up to date, and otherwise says since when it is not, and why. One look that
// fails does not make it out of date.
func (s *Server) stale() error {
	since := s.looked
	if since.IsZero() {
		since = s.begun
	}
	old := time.Since(since)
	switch {
	case old < 10*time.Second+3*(s.Every+s.took):
		return nil
	case s.away != nil:
		return fmt.Errorf("the table was last read %v ago: %w", old.Round(time.Second), s.explain(s.away))
	}
	return fmt.Errorf("the table was last read %v ago: the database does not answer", old.Round(time.Second))
}

func (s *Server) explain(err error) error {
	if s.Explain == nil {
		return err
	}
	return s.Explain(err)
}
