package memstore

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Locking is a table.Store that simulates how long messages, locks and commits take in Spanner, so that tests can show
// how competing candidates slow each other down. Snapshot reads take no locks. A commit locks the rows that it writes
// and the rows that its transaction has read, and keeps the locks until it is applied or refused. Locks are granted in
// the order of the requests.
//
// Where Spanner's behavior is not documented, Locking assumes the worst case. Even a commit that is going to fail waits
// for its locks, and then holds them for the duration given by Refusal. A row has a single lock for all its columns.
type Locking struct {
	Store  *Store
	OneWay time.Duration // the time that a message takes
	Paxos  time.Duration // how long a commit keeps its locks before it is applied

	// Refusal is how long a failing commit keeps its locks. A commit fails if a row has changed since its transaction
	// read the row, if it updates a row that does not exist, or if it inserts a row that exists.
	Refusal time.Duration

	locks locks
}

// NewLocking returns a Locking on a table, with a round-trip time of five milliseconds.
func NewLocking(s *Store) *Locking {
	const way = 2500 * time.Microsecond
	return &Locking{Store: s, OneWay: way, Paxos: way, Refusal: 200 * time.Microsecond}
}

// travel waits for as long as a message takes.
func (s *Locking) travel(ctx context.Context) error {
	t := time.NewTimer(s.OneWay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// Read implements table.Store.
func (s *Locking) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if err := s.travel(ctx); err != nil {
		return nil, time.Time{}, err
	}
	rows, at, err := s.Store.Read(ctx, step, bound, keys)
	if lost := s.travel(ctx); lost != nil {
		return nil, time.Time{}, lost
	}
	return rows, at, err
}

// Commit implements table.Store.
func (s *Locking) Commit(ctx context.Context, step string, writes []table.Write) error {
	_, err := s.begin().commit(ctx, step, writes)
	return err
}

// Transact implements table.Store.
func (s *Locking) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	t := s.begin()
	writes, err := fn(ctx, t)
	if err != nil {
		return time.Time{}, err
	}
	return t.commit(ctx, step, writes)
}

// transaction is an optimistic transaction: it takes no locks before its commit.
type transaction struct {
	*Locking
	txn   *Transaction
	reads []span // must be unchanged at the commit
}

func (s *Locking) begin() *transaction {
	return &transaction{Locking: s, txn: s.Store.Begin()}
}

// Read implements table.Reader.
func (t *transaction) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	if err := t.travel(ctx); err != nil {
		return nil, err
	}
	t.reads = append(t.reads, spans(keys, false)...)
	rows, err := t.txn.Read(ctx, keys)
	if lost := t.travel(ctx); lost != nil {
		return nil, lost
	}
	return rows, err
}

func (t *transaction) commit(ctx context.Context, step string, writes []table.Write) (time.Time, error) {
	if err := t.travel(ctx); err != nil {
		return time.Time{}, err
	}
	held, err := t.locks.acquire(ctx, append(t.reads, written(writes)...))
	if err != nil {
		return time.Time{}, err
	}
	at, err := t.apply(step, writes)
	t.locks.release(held)
	if lost := t.travel(ctx); lost != nil {
		return time.Time{}, lost
	}
	return at, err
}

// apply completes even if the client no longer waits for it.
func (t *transaction) apply(step string, writes []table.Write) (time.Time, error) {
	if err := t.txn.Check(writes); err != nil {
		time.Sleep(t.Refusal)
		return time.Time{}, err
	}
	time.Sleep(t.Paxos)
	return t.txn.Commit(step, writes)
}
