package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Locking is a table.Store with the time that Spanner's messages, locks and commits take, which delays a crowd of
// candidates. Snapshots are read without locks. A commit waits for the lock of each row that it writes or has to find
// unchanged, first come, first served, and keeps them until it is applied or refused.
//
// If Spanner's behaviour is not documented, Locking assumes the worse: a commit that has to fail waits for its locks
// too and keeps them for Refusal, a row has one lock for all its columns, and reads of a pessimistic
// transaction exclude each other, as with a FOR UPDATE hint.
type Locking struct {
	Store  *Store
	OneWay time.Duration // of each message
	Paxos  time.Duration // how long a commit keeps its locks before it is applied

	// Refusal is how long a failing commit keeps its locks, whether what it read has changed or a row does not exist.
	Refusal time.Duration

	// Pessimistic makes transactions lock what they read, gaps included, when they read it. A transaction that is silent
	// for ten seconds is aborted.
	Pessimistic bool

	locks locks
}

// NewLocking returns a Locking on a table, with five milliseconds for each round trip.
func NewLocking(s *Store) *Locking {
	const way = 2500 * time.Microsecond
	return &Locking{Store: s, OneWay: way, Paxos: way, Refusal: 200 * time.Microsecond}
}

const idleAbort = 10 * time.Second

// ErrDied is the error that a transaction's function returns for a client that dies: Spanner hears nothing more from it,
// not even a rollback.
var ErrDied = errors.New("the client died")

// travel takes the time of a message.
func (s *Locking) travel(ctx context.Context) error {
	t := time.NewTimer(s.OneWay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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

// transaction is a transaction of a client that does one thing after another.
type transaction struct {
	*Locking
	txn    *Transaction
	reads  []span // what has to be unchanged at the commit
	locker locker
	idle   *time.Timer // runs while Spanner waits for the client, if it has locks
}

func (s *Locking) begin() *transaction {
	return &transaction{Locking: s, txn: s.Store.Begin()}
}

// arrive takes the time of a message to Spanner, which may have aborted the transaction by then.
func (t *transaction) arrive(ctx context.Context) error {
	if err := t.travel(ctx); err != nil {
		t.rollback()
		return err
	}
	if t.idle != nil && !t.idle.Stop() {
		return fmt.Errorf("%w: it was idle for %v", table.ErrAborted, idleAbort)
	}
	return nil
}

// rollback frees the locks, once the message is there.
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

// apply continues whether or not the client still waits for it.
func (t *transaction) apply(step string, writes []table.Write) (time.Time, error) {
	defer t.locks.release(&t.locker)
	if err := t.txn.Check(writes); err != nil {
		time.Sleep(t.Refusal)
		return time.Time{}, err
	}
	time.Sleep(t.Paxos)
	return t.txn.Commit(step, writes)
}
