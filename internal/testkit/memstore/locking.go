package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Locking is a table.Store that simulates how long messages, locks and commits take in Spanner, so that tests can show
// how competing candidates slow each other down. Snapshot reads take no locks. A commit locks the rows that it writes
// and the rows that must not have changed, and keeps the locks until it is applied or refused. Locks are granted in the
// order of the requests.
//
// Where Spanner's behavior is not documented, Locking assumes the worst case. Even a commit that is going to fail waits
// for its locks, and then holds them for the duration given by Refusal. A row has a single lock for all its columns. Reads in
// pessimistic transactions exclude each other, as they do with a FOR UPDATE hint.
type Locking struct {
	Store  *Store
	OneWay time.Duration // the time that a message takes
	Paxos  time.Duration // how long a commit keeps its locks before it is applied

	// Refusal is how long a failing commit keeps its locks. A commit fails if a row that it has read has changed, or if
	// it writes to a row that does not exist.
	Refusal time.Duration

	// Pessimistic makes transactions lock the keys that they read at the time of the read, even keys without a row. A
	// transaction that is idle for ten seconds is aborted.
	Pessimistic bool

	locks locks
}

// NewLocking returns a Locking on a table, with a round-trip time of five milliseconds.
func NewLocking(s *Store) *Locking {
	const way = 2500 * time.Microsecond
	return &Locking{Store: s, OneWay: way, Paxos: way, Refusal: 200 * time.Microsecond}
}

const idleAbort = 10 * time.Second

// ErrDied is returned by a transaction function to simulate a client that dies. Spanner then hears nothing more from
// the client, not even a rollback.
var ErrDied = errors.New("the client died")

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
	switch {
	case errors.Is(err, ErrDied):
		return time.Time{}, err
	case err != nil:
		t.rollback()
		return time.Time{}, err
	}
	return t.commit(ctx, step, writes)
}

// transaction is a transaction of a client that makes one call at a time.
type transaction struct {
	*Locking
	txn    *Transaction
	reads  []span // must be unchanged at the commit
	locker locker
	idle   *time.Timer // runs while the client holds locks and Spanner waits for it
}

func (s *Locking) begin() *transaction {
	return &transaction{Locking: s, txn: s.Store.Begin()}
}

// arrive waits until a message has reached Spanner. It returns an error if Spanner has aborted the transaction by then.
func (t *transaction) arrive(ctx context.Context) error {
	if err := t.travel(ctx); err != nil {
		t.rollback()
		return err
	}
	if t.idle != nil && !t.idle.Stop() {
		return aborted(fmt.Sprintf("the transaction was idle for %v", idleAbort))
	}
	return nil
}

// rollback frees the locks when its message has reached Spanner.
func (t *transaction) rollback() {
	time.AfterFunc(t.OneWay, func() { t.locks.release(&t.locker) })
}

// Read implements table.Reader.
func (t *transaction) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	if err := t.arrive(ctx); err != nil {
		return nil, err
	}
	if t.Pessimistic {
		if err := t.locks.acquire(ctx, &t.locker, spans(keys, true)); err != nil {
			return nil, err
		}
		t.idle = time.AfterFunc(idleAbort, func() { t.locks.release(&t.locker) })
	} else {
		t.reads = append(t.reads, spans(keys, false)...)
	}
	rows, err := t.txn.Read(ctx, keys)
	if lost := t.travel(ctx); lost != nil {
		return nil, lost
	}
	return rows, err
}

func (t *transaction) commit(ctx context.Context, step string, writes []table.Write) (time.Time, error) {
	if err := t.arrive(ctx); err != nil {
		return time.Time{}, err
	}
	if err := t.locks.acquire(ctx, &t.locker, append(t.reads, written(writes)...)); err != nil {
		return time.Time{}, err
	}
	at, err := t.apply(step, writes)
	if lost := t.travel(ctx); lost != nil {
		return time.Time{}, lost
	}
	return at, err
}

// apply runs to its end even if the client no longer waits for it.
func (t *transaction) apply(step string, writes []table.Write) (time.Time, error) {
	defer t.locks.release(&t.locker)
	if err := t.txn.Check(writes); err != nil {
		time.Sleep(t.Refusal)
		return time.Time{}, err
	}
	time.Sleep(t.Paxos)
	return t.txn.Commit(step, writes)
}
