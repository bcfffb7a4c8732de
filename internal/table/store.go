package table

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrMissing is the error of a commit that updates a row that does not exist, or if the table or the database does
	// not. Nothing of the commit was applied.
	ErrMissing = errors.New("row does not exist")

	// ErrNotFound is the error of a commit if something does not exist and it is not known what. It says nothing about
	// any row.
	ErrNotFound = errors.New("something was not found")

	// ErrExists is the error of a commit that inserts a row that exists. Nothing of the commit was applied.
	ErrExists = errors.New("row exists already")

	// ErrAborted is the error of a transaction that Spanner aborted because another was first. Nothing was written.
	ErrAborted = errors.New("transaction aborted")
)

// Store is what the protocol needs of Spanner: snapshots with their timestamp, blind commits and read-write
// transactions. The step names the caller in Spanner's own statistics.
type Store interface {
	// Read returns the rows that exist in one snapshot, and its timestamp: every commit that is not in the rows has a
	// later timestamp.
	Read(ctx context.Context, step string, bound Bound, keys Keys) ([]Row, time.Time, error)

	// Commit applies the writes in their order, all or none, at least once: it may be applied again
	// later, whatever was returned. It fails with ErrMissing if an Update finds no row, with ErrNotFound
	// if it can't be told whether that is why, and with ErrExists if an Insert finds one.
	Commit(ctx context.Context, step string, writes []Write) error

	// Transact runs fn in a serializable transaction, once, and commits the writes that it returns, at most once. It
	// returns the commit timestamp. The transaction takes no locks before its commit: if a row that fn read has changed
	// by then, it fails with ErrAborted. An error of fn is returned unwrapped, and nothing is written. Any other error
	// may hide a commit.
	Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (time.Time, error)
}

// Via is a Store whose calls all go through one function: it makes each call on a store of its choice, once, again
// or not at all.
type Via func(ctx context.Context, step string, call func(context.Context, Store) error) error

// Read implements Store.
func (v Via) Read(ctx context.Context, step string, bound Bound, keys Keys) (rows []Row, at time.Time, err error) {
	err = v(ctx, step, func(ctx context.Context, s Store) error { rows, at, err = s.Read(ctx, step, bound, keys); return err })
	return rows, at, err
}

// Commit implements Store.
func (v Via) Commit(ctx context.Context, step string, writes []Write) error {
	return v(ctx, step, func(ctx context.Context, s Store) error { return s.Commit(ctx, step, writes) })
}

// Transact implements Store.
func (v Via) Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (at time.Time, err error) {
	err = v(ctx, step, func(ctx context.Context, s Store) error { at, err = s.Transact(ctx, step, fn); return err })
	return at, err
}

// Bound says which snapshot is read.
type Bound int

const (
	// Present is the time of the read by Spanner's clock: it advances while nobody writes.
	Present Bound = iota

	// Strong shows every commit that was acknowledged before the read began. Its timestamp may be the last commit's,
	// however long ago that was.
	Strong
)

// Reader reads within a transaction, which commits only if the rows have not changed.
type Reader interface {
	Read(ctx context.Context, keys Keys) ([]Row, error)
}

// Keys are the keys in Names and those in Ranges, or All.
type Keys struct {
	Names  []string
	Ranges []Range
	All    bool

	// For All: only keys that begin with Prefix and come after After, and the first Limit of them, or, if that is 0,
	// without those that Skips.
	Prefix string
	After  string
	Limit  int
	Busy   bool
}

// Skips reports whether a row is left out if Busy: the row, or the free row, of a released lock that is no part of a
// group. A former member's row says whether its partitions are free.
func (k Keys) Skips(row Row) bool {
	if k.Busy && leaseLike.MatchString(row.Name) && !freedSince(row).IsZero() {
		return true
	}
	return k.Busy && row.Heartbeat.IsZero() && !leaseLike.MatchString(row.Name) && !groupRow.MatchString(row.Name)
}

// Range is the keys from From to To, both included.
type Range struct{ From, To string }

// Row is a row of the lock table. A NULL is a zero value.
type Row struct {
	Name      string
	Heartbeat time.Time
	Token     time.Time
	Writer    string
}

// Kind is what a Write does to its row.
type Kind int

// An Update of no columns changes nothing and still fails if the row does not exist. A Put is an Insert or an Update.
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

// Now stands for the timestamp of the commit that writes it.
var Now = now{}

type now struct{}

// The columns of the table.
const (
	ColName      = "name"
	ColHeartbeat = "heartbeat"
	ColToken     = "token"
	ColWriter    = "writer"
)
