// Package fence protects an application's commits. A protected commit fails unless the given locks are held under the
// given tokens.
package fence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// ErrFenced means that a commit's token is not valid, or is no longer valid.
var ErrFenced = errors.New("fenced: the lock is not held under this token")

// errInMemory says that a commit was not sent because its locks have no client. Such locks exist only in tests.
var errInMemory = errors.New("this lock table is in memory, so only the token was checked and nothing was written; use spindletest.New, which provides a database")

// errNotRun is the error of a transaction whose token is valid, but whose locks have no client.
var errNotRun = errors.New("this lock table is in memory and can't run a transaction, so the transaction's function was not called; use spindletest.New, which provides a database")

// errNoFence is the error of a commit for which no fence was given.
var errNoFence = errors.New("spindle: apply: no lock was given: pass at least one lock to fence the commit")

// A Fence contains the names of locks in one table, and the token under which they must be held. If the token is zero,
// Apply and ReadWriteTransaction fail without a request to Spanner.
type Fence struct {
	Table table.Spanner
	Names []string
	Token table.Token
	Wrap  func(error) error // adds the lock's name to an error
	About telemetry.Scope
	Gone  func() // called when a read has shown that a lock is not held under the token; may be nil
}

// Mutations returns one mutation per lock. The mutations do not change any data. Their only effect is that the commit
// fails unless every lock is held under the token.
func (f Fence) Mutations() []*spanner.Mutation {
	ms := make([]*spanner.Mutation, len(f.Names))
	for i, name := range f.Names {
		ms[i] = f.Table.Fence(name, f.Token)
	}
	return ms
}

// Statement returns an SQL statement for a fence with a single lock. The statement updates one row if the lock is held
// under the token. Otherwise it updates no row.
func (f Fence) Statement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return f.Table.FenceStatement(dialect, f.Names[0], f.Token)
}

// Apply is like Client.Apply, but the commit is serializable and protected by the fence.
func (f Fence) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return Fences{f}.Apply(ctx, ms, opts...)
}

// Fences are several fences in one database, each with its own token.
type Fences []Fence

// Apply is like Client.Apply, but the commit is serializable and protected by every fence.
func (fs Fences) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	began := time.Now()
	if answered, at, err := fs.withoutDatabase(ctx, began); answered {
		return at, err
	}
	opts = append(slices.Clip(opts), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE))
	at, err := retry(ctx, func() (time.Time, error) {
		return table.Acknowledged(fs[0].Table.DB.Apply(ctx, append(fs.mutations(), ms...), opts...))
	})
	return at, fs.classify(ctx, began, err)
}

func (fs Fences) mutations() (all []*spanner.Mutation) {
	for _, f := range fs {
		all = append(all, f.Mutations()...)
	}
	return all
}

// withoutDatabase returns the result of a commit that is not sent to Spanner, because it can't succeed or because all
// locks are in memory. If the commit must be sent, answered is false. For locks in memory, withoutDatabase only checks
// the tokens, because there is no database to write to.
func (fs Fences) withoutDatabase(ctx context.Context, began time.Time) (answered bool, at time.Time, err error) {
	if len(fs) == 0 {
		return true, at, errNoFence
	}
	for _, f := range fs {
		switch {
		case f.Token <= 0:
			return true, at, f.fenced(ctx, began, nil)
		case ctx.Err() != nil: // a request could leave the outcome unknown
			return true, at, f.Wrap(fmt.Errorf("nothing was written, because ctx ended before the commit was sent: %w", table.Ended(ctx)))
		case f.Table.DB == nil:
			if err := f.checkInMemory(ctx, began); err != nil {
				return true, at, err
			}
		}
	}
	for _, f := range fs[1:] {
		if one, other := databaseOf(fs[0]), databaseOf(f); one != other {
			return true, at, f.Wrap(fmt.Errorf("a commit can write to only one database, but these locks are in two: %s and %s", one, other))
		}
	}
	return fs[0].Table.DB == nil, time.Now(), nil
}

func databaseOf(f Fence) string {
	if f.Table.DB == nil {
		return "memory"
	}
	return f.Table.DB.DatabaseName()
}

// classify returns the error for the first fence whose token is not valid or can't be checked. If there is none, or if
// no fence can have caused err, it returns err.
func (fs Fences) classify(ctx context.Context, began time.Time, err error) error {
	for _, f := range fs {
		if found := f.classify(ctx, began, err); found != err {
			return found
		}
	}
	return err
}

// ReadWriteTransaction is like Client.ReadWriteTransaction, but the transaction is serializable and protected by the
// fence. If fn fails, ReadWriteTransaction returns fn's error unchanged, unless the client runs fn again after the
// error.
func (f Fence) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	began := time.Now()
	switch answered, _, err := (Fences{f}).withoutDatabase(ctx, began); {
	case err != nil:
		return time.Time{}, err
	case answered:
		return time.Time{}, f.notRun()
	}
	var refused error
	at, err := retry(ctx, func() (time.Time, error) {
		resp, err := f.Table.DB.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			if refused = txn.BufferWrite(f.Mutations()); refused == nil {
				refused = fn(ctx, txn)
			}
			return refused
		}, spanner.TransactionOptions{IsolationLevel: sppb.TransactionOptions_SERIALIZABLE})
		if refused != nil {
			return resp.CommitTs, err
		}
		return table.Acknowledged(resp.CommitTs, err)
	})
	if refused != nil {
		return at, err // fn's own error is never about the fence
	}
	return at, f.classify(ctx, began, err)
}

// retry runs a transaction, and runs it again whenever the emulator discards it, until ctx ends. The client itself
// retries transactions that Spanner aborts.
func retry(ctx context.Context, run func() (time.Time, error)) (time.Time, error) {
	for most := time.Millisecond; ; most = min(2*most, 100*time.Millisecond) {
		at, err := run()
		if !table.Dropped(err) {
			return at, err
		}
		select {
		case <-time.After(rand.N(most)):
		case <-ctx.Done():
			return at, err
		}
	}
}

// checkInMemory returns an error unless all locks are held under the token. The fence must have no client.
func (f Fence) checkInMemory(ctx context.Context, began time.Time) error {
	if f.Table.Memory == nil {
		return f.Wrap(errInMemory)
	}
	valid, err := table.Table{Store: f.Table.Memory}.Valid(ctx, f.Token, f.Names...)
	switch {
	case err != nil:
		return f.Wrap(err)
	case !valid:
		f.gone()
		return f.fenced(ctx, began, errInMemory)
	}
	return nil
}

// notRun returns the error of a transaction that can't run because its locks are in memory. It also passes the error to
// the table in memory, so that a test fails even if the code under test ignores the error.
func (f Fence) notRun() error {
	err := f.Wrap(errNotRun)
	if test, ok := f.Table.Memory.(interface{ NotRun(error) }); ok {
		test.NotRun(err)
	}
	return err
}

// classify finds out whether the fence refused a commit. The commit may also have failed because of the rows that the
// application wrote, and Spanner's error can look the same in both cases. So classify reads the lease rows to check
// whether the token is still valid.
func (f Fence) classify(ctx context.Context, began time.Time, err error) error {
	if !refusal(err) {
		return err
	}
	// The commit may have taken all of ctx's time.
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	valid, readErr := table.Table{Store: f.Table}.Valid(running, f.Token, f.Names...)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w (it is not known whether the fence refused the commit: %w)", err, f.Wrap(readErr))
	case valid:
		return err
	}
	f.gone()
	return f.fenced(ctx, began, err)
}

func (f Fence) gone() {
	if f.Gone != nil {
		f.Gone()
	}
}

// fenced returns the error for a commit that the fence refused, and records the refusal in the telemetry. The argument
// err is the underlying error, or nil if there is none, and began is the time at which the commit began.
func (f Fence) fenced(ctx context.Context, began time.Time, err error) error {
	refused := fmt.Errorf("token %v: %w", f.Token, ErrFenced)
	if err != nil {
		refused = fmt.Errorf("%w: %w", refused, err)
	}
	if f.Wrap == nil { // this is the zero Fence
		return refused
	}
	refused = f.Wrap(refused)
	f.About.Fenced(ctx, f.Token, began, refused)
	return refused
}

// refusal reports whether a commit may have failed because of the contents of the database.
func refusal(err error) bool {
	switch spanner.ErrCode(err) {
	case codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.InvalidArgument:
		return true
	}
	return false
}
