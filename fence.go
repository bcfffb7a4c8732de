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

// Fence returns a mutation that changes nothing and lets a commit succeed only while token is valid: from the election
// until the lock is released or claimed by another. Add it to a serializable transaction of your own in the lock's
// database, before your own mutations. If the fence fails, the whole commit fails with NOT_FOUND of a row in the lock's
// table: see IsFenced. Fence costs no RPC, and may be called from any goroutine.
//
// A fenced commit of an old token never commits after a newer term has begun, whatever any clock says.
func (l *Lock) Fence(token Token) *spanner.Mutation {
	return l.spanner.Fence(l.name, table.Token(token))
}

// FenceStatement is Fence for a transaction of your own that is all SQL, as with database/sql or another language's
// driver. It returns a statement that updates exactly one row, without changing it, while token is valid, and otherwise
// none. The driver returns the number of rows. If it is not one, roll the transaction back, as nothing else does, and
// return ErrFenced, which IsFenced recognizes. Where you can buffer mutations, use Fence or ReadWriteTransaction: they
// allow DML too, and need no check.
//
// The transaction must be serializable. It may run the statement at any point, best last: from then on, a release or a
// claim of the lock waits until the transaction has ended. Heartbeats don't.
//
// The parameter is p1 in Params, a string: @p1 in GoogleSQL, $1 in PostgreSQL. The table's name is the one given to
// New, without quotes. If an argument of New was wrong, the statement is empty, and Spanner refuses it. FenceStatement
// costs no RPC, and may be called from any goroutine.
func (l *Lock) FenceStatement(dialect databasepb.DatabaseDialect, token Token) spanner.Statement {
	if l.err != nil {
		return spanner.Statement{}
	}
	return l.fence(token).Statement(dialect)
}

// Apply is Client.Apply in a serializable transaction, with the fence added to ms. If the commit is refused,
// errors.Is(err, ErrFenced) is true exactly when the token is not valid any more, whatever other reason Spanner gives,
// such as a row that a newer leader has inserted or deleted. While the token is valid, an error about your own rows is
// returned as it is. After ErrFenced nothing of ms was applied (but with spanner.ApplyAtLeastOnce an earlier attempt
// may have been, while the token was valid). After other errors, such as a timeout or a reply without a timestamp, ms
// may have been applied. With the zero token, Apply returns ErrFenced without an RPC. On a spindletest.Fake, which has
// no database, Apply checks the token and applies nothing.
func (l *Lock) Apply(ctx context.Context, token Token, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	return l.fence(token).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is Client.ReadWriteTransaction, serializable and with the fence added to what fn writes. It
// returns fn's error, or an error as Apply does. The commit checks the fence: fn may read before that, but its writes
// commit only while the token is valid. On a spindletest.Fake, ReadWriteTransaction checks the token and does not call
// fn.
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

// Holding is anything that Apply can fence a commit with: a Term, a lock.Mutex, a lock.Set, a lock.Permit or a
// group.Partition.
type Holding interface {
	// FenceIn returns the fence for Apply.
	FenceIn(ctx context.Context) fence.Fence
}

// Apply is Lock.Apply with the fences of several locks, which may be in different tables of one database: ms is applied
// only while all of them are held under their tokens. An error for which errors.Is(err, ErrFenced) is true names a lock
// whose token is not valid any more. Without a lock, Apply returns an error and applies nothing.
func Apply(ctx context.Context, under []Holding, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	var fences fence.Fences
	for i, h := range under {
		if isNil(h) {
			return time.Time{}, fmt.Errorf("spindle: apply: lock %d of %d is nil: leave it out", i+1, len(under))
		}
		fences = append(fences, h.FenceIn(ctx))
	}
	return fences.Apply(ctx, ms, opts...)
}

// isNil is true for a nil pointer too, such as the permit of a TryAcquire that took no slot.
func isNil(h Holding) bool {
	v := reflect.ValueOf(h)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// IsFenced reports whether err is that of a fence in a transaction of your own, and not about a row of yours:
// Spanner's NOT_FOUND of a row in the lock table, given as to New, whose key is that of a term. It reads Spanner's
// message, and makes no RPC. It is true for ErrFenced too.
//
// It is only as exact as the message. Spanner gives one reason of several: if a newer holder has inserted the row that
// you insert, Spanner may say ALREADY_EXISTS, and IsFenced is false. It is also false if the message does not show the
// whole key: the emulator cuts it after 1024 bytes. Apply and ReadWriteTransaction ask the table, and are exact.
func IsFenced(err error, lockTable string) bool {
	return errors.Is(err, ErrFenced) || table.LeaseMissing(err, lockTable)
}
