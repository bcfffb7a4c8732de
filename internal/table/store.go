package table

import (
	"context"
	"errors"
	"time"
)

// ErrMissing is what a commit fails with when a row that it updates does not exist. Nothing of the
// commit was applied.
var ErrMissing = errors.New("row does not exist")

// Store is what the protocol asks of Spanner: strong reads with their timestamp, blind commits and
// read-write transactions. The step names the caller in Spanner's own statistics.
type Store interface {
	// Read returns the rows that exist, at the timestamp it also returns, which is Spanner's
	// present: every commit that is not in the rows has a later timestamp.
	Read(ctx context.Context, step string, keys Keys) ([]Row, time.Time, error)

	// Commit applies the writes in their order, all or none, at least once: it may be applied again
	// later, whatever was returned. It fails with ErrMissing where an Update finds no row.
	Commit(ctx context.Context, step string, writes []Write) error

	// Transact runs fn in a serializable transaction, as often as it takes, and commits the writes
	// that fn returns, exactly once. It returns the commit timestamp. An error of fn is returned
	// unwrapped and nothing is written. Any other error may hide a commit.
	Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (time.Time, error)
}

// Reader reads within a transaction. What it read can't change before the transaction commits.
type Reader interface {
	Read(ctx context.Context, keys Keys) ([]Row, error)
}

// Keys are the keys in Names and those in Ranges, or All.
type Keys struct {
	Names  []string
	Ranges []Range
	All    bool
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

// An Update of no columns changes nothing and still fails where the row does not exist.
const (
	Insert Kind = iota
	Update
	Delete
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
