package table

import (
	"context"
	"errors"
	"time"
)

var (
	// A commit fails with ErrMissing if a row to be updated, its table or the database does not exist. The failed
	// attempt applied nothing, but an earlier attempt at the same commit may have been applied.
	ErrMissing = errors.New("the row, its table or the database does not exist")

	// A commit fails with ErrNotFound if Spanner answers NOT_FOUND without clearly naming a row, the table or the
	// database. For example, a session may have been lost, but a row may also be missing.
	ErrNotFound = errors.New("something was not found")

	// A commit fails with ErrExists if it inserts a row that already exists. The failed attempt applied nothing, but an
	// earlier attempt at the same commit may have been applied.
	ErrExists = errors.New("row already exists")

	// A transaction fails with ErrAborted if Spanner aborted it because it conflicted with another transaction. Nothing
	// was written.
	ErrAborted = errors.New("transaction aborted")
)

// Store is the protocol's interface to Spanner. It consists of snapshot reads, blind commits, and read-write
// transactions. In each method, step is the name of the protocol step, which appears in Spanner's statistics.
type Store interface {
	// Read returns the selected rows of one snapshot, and the timestamp of that snapshot. A commit that is not in the
	// snapshot has a later timestamp.
	Read(ctx context.Context, step string, bound Bound, keys Keys) ([]Row, time.Time, error)

	// Commit applies all writes in order, or none of them. It may apply them more than once. The writes may also be
	// applied after Commit has returned, whether it returned nil or an error.
	//
	// Commit fails with ErrMissing or ErrNotFound if an Update finds no row, and with ErrExists if an Insert finds one.
	Commit(ctx context.Context, step string, writes []Write) error

	// Transact runs fn in a serializable transaction, commits the writes that fn returns, and returns the commit
	// timestamp. It runs fn at most once, and commits at most once. The transaction takes no locks before its commit.
	//
	// If a row that fn read changes before the commit, Transact fails with ErrAborted. If fn fails, Transact writes
	// nothing and returns an error that wraps fn's error. After any other error, the writes may have been committed.
	Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (time.Time, error)
}

// Via is a Store that passes all calls through one function. The function can make each call on any store, once,
// repeatedly or not at all.
type Via func(ctx context.Context, step string, call func(context.Context, Store) error) error

func (v Via) Read(ctx context.Context, step string, bound Bound, keys Keys) (rows []Row, at time.Time, err error) {
	err = v(ctx, step, func(ctx context.Context, s Store) error { rows, at, err = s.Read(ctx, step, bound, keys); return err })
	return rows, at, err
}

func (v Via) Commit(ctx context.Context, step string, writes []Write) error {
	return v(ctx, step, func(ctx context.Context, s Store) error { return s.Commit(ctx, step, writes) })
}

func (v Via) Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (at time.Time, err error) {
	err = v(ctx, step, func(ctx context.Context, s Store) error { at, err = s.Transact(ctx, step, fn); return err })
	return at, err
}

// Bound determines which snapshot is read.
type Bound int

// With Strong, the snapshot contains every commit that was acknowledged before the read began, but its timestamp may be
// as old as the last commit.
const (
	Present Bound = iota // the time of the read by Spanner's clock, which advances even if there are no writes
	Strong
)

// Reader reads rows in a transaction, which commits only if these rows have not changed.
type Reader interface {
	Read(ctx context.Context, keys Keys) ([]Row, error)
}

// Keys selects rows by key: the keys in Names and in Ranges, or all keys if All is set.
type Keys struct {
	Names  []string
	Ranges []Range
	All    bool

	// With All, only keys that begin with Prefix and are greater than After are selected. Limit is the maximum number
	// of rows, or 0 if there is no maximum. With Busy, Read omits the rows for which Skips returns true. Busy must not
	// be combined with After or Limit.
	Prefix string
	After  string
	Limit  int
	Busy   bool
}

// Skips reports whether Read omits the row because Busy is set. With Busy, Skips returns true for the lock row and the
// free row of a released lock, for the lock row after a withdrawn claim, and for plans. It returns false for the rows
// of members and partitions, because the row of a former member shows whether its partitions are free.
func (k Keys) Skips(row Row) bool {
	if !k.Busy {
		return false
	}
	if role, _ := RoleOf(row.Name); role == OfLease {
		return !freedSince(row).IsZero()
	}
	return row.Heartbeat.IsZero() && !groupRow.MatchString(row.Name)
}

// Range is the range of keys from From to To, inclusive.
type Range struct{ From, To string }

// Row is a row of the lock table. NULL is represented by the zero value.
type Row struct {
	Name      string
	Heartbeat time.Time
	Token     time.Time
	Writer    string
}

// Kind is the operation that a Write performs on its row.
type Kind int

// An Update without columns changes nothing, but still fails if the row does not exist. A Put inserts the row or, if it
// already exists, updates it.
const (
	Insert Kind = iota
	Update
	Delete
	Put
)

// Write is one write to the row with the key Name.
type Write struct {
	Kind Kind
	Name string
	Set  []Cell
}

// Cell is a column's new value: a time, a string, nil, or Now.
type Cell struct {
	Column string
	Value  any
}

// Now is replaced with the timestamp of the commit that writes it.
var Now = now{}

type now struct{}

const (
	ColName      = "name"
	ColHeartbeat = "heartbeat"
	ColToken     = "token"
	ColWriter    = "writer"
)
