package spindle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

// Fence returns a mutation that changes no data, but makes its commit fail unless token is valid. A token is valid from
// the election until the lock is released or claimed by another candidate. Add the mutation to a serializable
// transaction of your own in the lock's database, ahead of your other mutations. If the token is not valid, the whole
// commit fails with NOT_FOUND for a row of the lock table; see IsFenced. Fence makes no RPC, and may be called from any
// goroutine.
//
// A commit that is fenced with an old token never succeeds after a newer term has begun, regardless of any clock.
func (l *Lock) Fence(token Token) *spanner.Mutation {
	return l.spanner.Fence(l.name, table.Token(token))
}

// FenceStatement is like Fence, but for transactions of your own that consist of SQL only, as with database/sql or a
// driver for another language. It returns a statement that updates exactly one row, without changing it, while token is
// valid, and updates no row otherwise. Check the row count that the driver returns, because nothing else does: if it is
// not one, roll the transaction back and return ErrFenced, which IsFenced recognizes. Where you can buffer mutations,
// use Fence or ReadWriteTransaction instead. They also allow DML, and need no such check.
//
// The transaction must be serializable. It can run the statement at any point, but the end is best: once the
// statement has run, a release or claim of the lock has to wait until the transaction has ended. Heartbeats don't wait.
//
// The statement has one string parameter, p1 in Params, which is written @p1 in GoogleSQL and $1 in PostgreSQL. The
// table's name appears as it was given to New, without quotes. If an argument of New was invalid, the statement is
// empty, and Spanner rejects it. FenceStatement makes no RPC, and may be called from any goroutine.
func (l *Lock) FenceStatement(dialect databasepb.DatabaseDialect, token Token) spanner.Statement {
	if l.err != nil {
		return spanner.Statement{}
	}
	return l.fence(token).Statement(dialect)
}

// Apply is like spanner.Client.Apply, but runs in a serializable transaction and adds the fence to ms. If the commit is
// rejected, errors.Is(err, ErrFenced) is true exactly when the token is no longer valid, even if Spanner gives a
// different reason, such as a row that a newer leader has inserted or deleted. While the token is valid, an error about
// your own rows is returned unchanged.
//
// After ErrFenced, none of ms was applied. (With spanner.ApplyAtLeastOnce, an earlier attempt may have been applied
// while the token was still valid.) After any other error, such as a timeout or a reply without a timestamp, ms may
// have been applied. With the zero token, Apply returns ErrFenced without an RPC. On a spindletest.Fake, which has no
// database, Apply checks the token and applies nothing.
func (l *Lock) Apply(ctx context.Context, token Token, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	return l.fence(token).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spanner.Client.ReadWriteTransaction, but the transaction is serializable, and the fence
// is added to fn's writes. It returns fn's error, or an error as described for Apply. The fence is checked at the
// commit: fn may still read after the token has become invalid, but its writes commit only while the token is valid. On
// a spindletest.Fake, ReadWriteTransaction checks the token and does not call fn.
func (l *Lock) ReadWriteTransaction(ctx context.Context, token Token, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	return l.fence(token).ReadWriteTransaction(ctx, fn)
}

func (l *Lock) fence(token Token) fence.Fence {
	return fence.Fence{Table: l.spanner, Names: []string{l.name}, Token: table.Token(token), About: l.about,
		Wrap: func(err error) error { return l.wrap("fence", err) }}
}

// Holding is implemented by everything that Apply can fence a commit with: Term, lock.Mutex, lock.Set, lock.Permit and
// group.Partition.
type Holding interface {
	// FenceIn returns the fence for Apply.
	FenceIn(ctx context.Context) fence.Fence
}

// Apply is like Lock.Apply, but with the fences of several locks, which may be in different tables of one database. It
// applies ms only while every lock is held under its token. If errors.Is(err, ErrFenced) is true, the error names a
// lock whose token is no longer valid. If no lock is given, Apply returns an error and applies nothing.
func Apply(ctx context.Context, under []Holding, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	var fences fence.Fences
	for i, h := range under {
		if isNil(h) {
			return time.Time{}, fmt.Errorf("spindle: apply: lock %d of %d is nil; leave it out", i+1, len(under))
		}
		fences = append(fences, h.FenceIn(ctx))
	}
	return fences.Apply(ctx, ms, opts...)
}

// isNil also reports true for a nil pointer, such as the permit from a TryAcquire that found no free slot.
func isNil(h Holding) bool {
	v := reflect.ValueOf(h)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// IsFenced reports whether err, from a transaction of your own, was caused by a fence and not by one of your own rows.
// It looks for Spanner's NOT_FOUND message about a row of lockTable, the table given to New, with a key that belongs to
// a term. IsFenced makes no RPC. It also returns true for ErrFenced.
//
// The result is only as exact as the message. Spanner reports a single reason even if there are several: if a newer
// holder has inserted the row that you insert, Spanner may report ALREADY_EXISTS, and IsFenced returns false. It also
// returns false if the message does not contain the whole key; the emulator truncates keys after 1024 bytes. Apply and
// ReadWriteTransaction are exact, because they read the lock table.
func IsFenced(err error, lockTable string) bool {
	return errors.Is(err, ErrFenced) || table.LeaseMissing(err, lockTable)
}
