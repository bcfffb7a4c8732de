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

// Fence returns a mutation that changes no data, but makes the commit fail if token is not valid. A token is valid from
// the election until the lock is released or claimed again. Use the mutation in a serializable transaction in the
// lock's database, and buffer it before your own mutations. If the token is not valid, the whole commit fails with
// NOT_FOUND for a row of the lock table. Use IsFenced to recognize this error. Fence makes no RPC, and may be called
// from any goroutine.
//
// After a newer term has begun, a commit that is fenced with an old token never succeeds, no matter what any clock
// says.
func (l *Lock) Fence(token Token) *spanner.Mutation {
	return l.spanner.Fence(l.name, table.Token(token))
}

// FenceStatement is like Fence, but returns an SQL statement. It is for transactions that contain only SQL, for example
// with database/sql or a driver for another language. While token is valid, the statement updates exactly one row,
// without changing it. Otherwise it updates no row, but the transaction can still commit. You must therefore check the
// row count. If the count is not one, roll back and return ErrFenced, which IsFenced recognizes. If your transaction
// can buffer mutations, use Fence or ReadWriteTransaction instead. They work with DML too, and don't need this check.
//
// The transaction must be serializable. Run the statement as late as you can: once it has run, a release or claim of
// the lock has to wait until the transaction ends. Heartbeats don't wait.
//
// The statement has one string parameter, p1 in Params, which is written @p1 in GoogleSQL and $1 in PostgreSQL. The
// table's name appears exactly as it was passed to New, without quotes. If an argument of New was invalid, the
// statement is empty, and Spanner rejects it. FenceStatement makes no RPC, and may be called from any goroutine.
func (l *Lock) FenceStatement(dialect databasepb.DatabaseDialect, token Token) spanner.Statement {
	if l.err != nil {
		return spanner.Statement{}
	}
	return l.fence(token).Statement(dialect)
}

// Apply is like spanner.Client.Apply, but runs in a serializable transaction, and adds the fence to the mutations. If
// Spanner rejects the commit because of the database's contents, Apply checks whether the token is still valid. If it
// is not, the error wraps ErrFenced, even if Spanner gave another reason, such as a row that a newer leader has already
// inserted. If the token is still valid, the error about your own rows is returned unchanged. If the check fails, the
// error says so.
//
// ErrFenced also ends the token's term immediately, if this Lock still has that term. HasLock then returns false, and
// the leader function's ctx ends.
//
// After ErrFenced, none of the mutations was applied. The only exception is spanner.ApplyAtLeastOnce: an earlier
// attempt may have succeeded while the token was still valid. If ctx has ended before the call, Apply sends nothing,
// and its error says so and wraps ctx's error and cause. After any other error, such as a timeout or a reply without a
// timestamp, the mutations may have been applied.
//
// With the zero token, Apply returns ErrFenced without an RPC. On a spindletest.Fake, which has no database, Apply only
// checks the token.
func (l *Lock) Apply(ctx context.Context, token Token, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	return l.fence(token).Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spanner.Client.ReadWriteTransaction, but the transaction is serializable, and the fence
// is added to fn's writes. It returns fn's error, or the same errors as Apply. The fence is checked when the
// transaction commits. Until then, fn can still read with a token that is no longer valid, but its writes won't be
// committed. A spindletest.Fake can't run a transaction: if the token is valid, it fails the test instead of calling
// fn.
func (l *Lock) ReadWriteTransaction(ctx context.Context, token Token, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	return l.fence(token).ReadWriteTransaction(ctx, fn)
}

func (l *Lock) fence(token Token) fence.Fence {
	return fence.Fence{Table: l.spanner, Names: []string{l.name}, Token: table.Token(token), About: l.about,
		Wrap: func(err error) error { return l.wrap("fence", err) }, Gone: func() { l.gone(table.Token(token)) }}
}

// gone ends the term of the token, if this Lock still has that term.
func (l *Lock) gone(token table.Token) {
	if t := l.view.Load().term; t != nil && t.Token() == token {
		t.Supersede(l.config.Clock.Now())
	}
}

// Holding is implemented by the types that Apply accepts: Term, lock.Mutex, lock.Set, lock.Permit and group.Partition.
type Holding interface {
	// FenceIn returns the fence for Apply.
	FenceIn(ctx context.Context) Fence
}

// A Fence makes commits fail unless the locks of a Holding are still held under the same tokens as when FenceIn returned
// the Fence. Only this module implements it.
type Fence interface {
	// Mutations returns one mutation per lock, like Lock.Fence.
	Mutations() []*spanner.Mutation
	// Apply is like Lock.Apply.
	Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error)
	// ReadWriteTransaction is like Lock.ReadWriteTransaction.
	ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error)
}

// Apply is like Lock.Apply, but adds the fences of several locks. The locks may be in different tables of one database.
// The mutations are applied only if all the tokens are still valid. If a token is not valid, the error wraps ErrFenced
// and names the token's lock. Without any locks, Apply returns an error and applies nothing.
func Apply(ctx context.Context, under []Holding, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	var fences fence.Fences
	for i, h := range under {
		if isNil(h) {
			return time.Time{}, fmt.Errorf("spindle: apply: lock %d of %d is nil; leave it out", i+1, len(under))
		}
		f, _ := h.FenceIn(ctx).(fence.Fence) // any other fence counts as not held
		fences = append(fences, f)
	}
	return fences.Apply(ctx, ms, opts...)
}

// isNil reports whether h is nil or a nil pointer, such as the permit from a TryAcquire that found no free slot.
func isNil(h Holding) bool {
	v := reflect.ValueOf(h)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// IsFenced reports whether a transaction of your own failed because of its fence, and not because of the rows that it
// wrote. It recognizes ErrFenced, and the NOT_FOUND error that Spanner returns for a lease row in lockTable. Pass the
// same table name as to New. IsFenced makes no RPC.
//
// IsFenced sees only the error, so it can miss a failed fence. Spanner reports a single reason even if there are
// several. For example, if a newer holder has already inserted the row that you insert, Spanner may report
// ALREADY_EXISTS, and IsFenced returns false. It also returns false if the message does not contain the whole key; the
// emulator truncates keys after 1024 bytes. Apply and ReadWriteTransaction don't have these limitations, because they
// read the lock table.
func IsFenced(err error, lockTable string) bool {
	return errors.Is(err, ErrFenced) || table.LeaseMissing(err, lockTable)
}
