// Package memstore provides a lock table in memory, for tests in virtual time, where an emulator cannot run. It
// implements the guarantees of Spanner that the protocol needs: strong reads with a timestamp, increasing commit
// timestamps, serializable transactions, and atomic commits. [Locking] also simulates how long messages, locks and
// commits take.
package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// Store is a table.Store. The zero value is an empty table. Its true time is time.Now.
type Store struct {
	// OnCommit, if set, is called within each commit, with the rows before and after the commit. Each call costs a copy
	// of the table.
	OnCommit func(step string, at time.Time, before, after map[string]table.Row)

	// Idle makes strong reads return the timestamp of the last commit, as Spanner may do while nothing is written.
	Idle bool

	// Ahead, if set, returns how far the next timestamp is ahead of true time. In Spanner, a timestamp can be ahead
	// because TrueTime is uncertain, and a commit is answered only after its timestamp has passed. Store does not wait,
	// so the caller has to.
	Ahead func() time.Duration

	mu    sync.Mutex
	rows  map[string]table.Row
	last  time.Time            // the last timestamp that was given out
	shown map[string]table.Row // the rows that OnCommit got last
	index index
}

// Rows returns a copy of all rows, by name.
func (s *Store) Rows() map[string]table.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rows)
}

// Read implements table.Store.
func (s *Store) Read(ctx context.Context, _ string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if err := ended(ctx); err != nil {
		return nil, time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.After(s.last) && !(s.Idle && bound == table.Strong) {
		s.last = now // later commits get later timestamps than this read
	}
	return s.find(keys), s.last, nil
}

// Commit implements table.Store.
func (s *Store) Commit(ctx context.Context, step string, writes []table.Write) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.commit(step, writes)
	return err
}

// now returns the present time by Spanner's clock.
func (s *Store) now() time.Time {
	now := time.Now().UTC()
	if s.Ahead != nil {
		now = now.Add(s.Ahead())
	}
	return now.Truncate(time.Microsecond)
}

// Transact implements table.Store.
func (s *Store) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	txn := s.Begin()
	writes, err := fn(ctx, txn)
	if err == nil {
		err = ended(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	return txn.Commit(step, writes)
}

// Begin begins a transaction, for callers that want time to pass between its reads and its commit.
func (s *Store) Begin() *Transaction { return &Transaction{store: s} }

// Transaction is a table.Reader with a commit.
type Transaction struct {
	store *Store
	reads []txnRead
}

type txnRead struct {
	keys table.Keys
	at   time.Time // the read includes the commits up to this time
}

// Commit applies the writes. It returns table.ErrAborted if a row has changed since the transaction read it.
func (t *Transaction) Commit(step string, writes []table.Write) (time.Time, error) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if err := t.current(); err != nil {
		return time.Time{}, err
	}
	return t.store.commit(step, writes)
}

// Check returns the error that Commit would return now.
func (t *Transaction) Check(writes []table.Write) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if err := t.current(); err != nil {
		return err
	}
	_, err := t.store.after(writes, t.store.last)
	return err
}

// Read implements table.Reader.
func (t *Transaction) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.reads = append(t.reads, txnRead{keys, t.store.last})
	return t.store.find(keys), nil
}

// current returns an error if a row has changed since the transaction read it, or if a row that it found missing has
// been inserted. Like Spanner, it compares commit times rather than contents. A row that was changed and changed back,
// or inserted and deleted again, therefore counts as changed.
func (t *Transaction) current() error {
	for _, r := range t.reads {
		for name := range t.store.index.names(r.keys) {
			if t.store.index.changed[name].After(r.at) {
				return aborted("rows that it read have changed")
			}
		}
		if t.store.index.forgotten.After(r.at) {
			return aborted("it has been open for more than an hour")
		}
	}
	return nil
}

// find returns the rows in the order of their keys.
func (s *Store) find(keys table.Keys) []table.Row {
	var found []table.Row
	for name := range s.index.names(keys) {
		if row, exists := s.rows[name]; exists && !keys.Skips(row) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b table.Row) int { return strings.Compare(a.Name, b.Name) })
	found = slices.CompactFunc(found, func(a, b table.Row) bool { return a.Name == b.Name })
	if keys.Limit > 0 {
		found = found[:min(keys.Limit, len(found))]
	}
	return found
}

func (s *Store) commit(step string, writes []table.Write) (time.Time, error) {
	at := s.now()
	if !at.After(s.last) {
		at = s.last.Add(time.Microsecond)
	}
	after, err := s.after(writes, at)
	if err != nil {
		return time.Time{}, err
	}
	if s.rows == nil {
		s.rows = map[string]table.Row{}
	}
	for name, row := range after {
		switch old, existed := s.rows[name]; {
		case row == nil && existed:
			delete(s.rows, name)
		case row != nil && (!existed || old != *row):
			s.rows[name] = *row
		default:
			continue // nothing has changed
		}
		s.index.change(name, at, s.rows)
	}
	s.last = at
	if s.OnCommit != nil {
		after := maps.Clone(s.rows)
		s.OnCommit(step, at, s.shown, after)
		s.shown = after
	}
	return at, nil
}

// after returns the rows that the writes affect, by name, as they are after the commit. A deleted row is nil.
func (s *Store) after(writes []table.Write, at time.Time) (map[string]*table.Row, error) {
	after := map[string]*table.Row{}
	for _, w := range writes {
		row, written := after[w.Name]
		if old, exists := s.rows[w.Name]; exists && !written {
			row = &old
		}
		switch {
		case w.Kind == table.Delete:
			after[w.Name] = nil
			continue
		case w.Kind == table.Update && row == nil:
			return nil, answer(table.ErrMissing, codes.NotFound, fmt.Sprintf("Row [%s] in table locktable is missing. Row cannot be updated.", w.Name))
		case w.Kind == table.Insert && row != nil:
			return nil, answer(table.ErrExists, codes.AlreadyExists, fmt.Sprintf("Row [%s] in table locktable already exists", w.Name))
		case row == nil:
			row = &table.Row{Name: w.Name}
		}
		for _, c := range w.Set {
			set(row, c, at)
		}
		after[w.Name] = row
	}
	return after, nil
}

// answer returns an error as table.Spanner does: the Store's error, together with the error of Spanner's client.
func answer(err error, code codes.Code, desc string) error {
	return fmt.Errorf("%w: %w", err, spanner.ToSpannerError(status.Error(code, desc)))
}

func aborted(why string) error { return answer(table.ErrAborted, codes.Aborted, why) }

// ended returns the error with which Spanner's client reports that ctx has ended, or nil.
func ended(ctx context.Context) error { return spanner.ToSpannerError(ctx.Err()) }

func set(row *table.Row, c table.Cell, at time.Time) {
	var t time.Time
	var s string
	switch v := c.Value.(type) {
	case time.Time:
		t = v
	case string:
		s = v
	case nil:
	default: // table.Now
		t = at
	}
	switch c.Column {
	case table.ColHeartbeat:
		row.Heartbeat = t
	case table.ColToken:
		row.Token = t
	case table.ColWriter:
		row.Writer = s
	}
}
