// Package fence makes an application's commits succeed only while locks are held under a token. The elector and package
// lock share it.
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

// ErrFenced says that a commit's token is not valid, or not any more.
var ErrFenced = errors.New("fenced: the lock is not held under this token")

// errInMemory is for locks without a client, as in tests.
var errInMemory = errors.New("this lock table is in memory: only the token was checked, and nothing is ever written; spindletest.New has a database")

// errNoFence is for a commit that would not be fenced at all.
var errNoFence = errors.New("spindle: apply: no lock was given to fence the commit with: give it at least one")

// A Fence is locks of one table, and the token under which they must be held. With the zero token, Spanner is not
// asked.
type Fence struct {
	Table table.Spanner
	Names []string
	Token table.Token
	Wrap  func(error) error // adds to an error which lock it is about
	About telemetry.Scope
}

// Mutations returns mutations that change nothing, and fail their commit unless every lock is held under the token.
func (f Fence) Mutations() []*spanner.Mutation {
	ms := make([]*spanner.Mutation, len(f.Names))
	for i, name := range f.Names {
		ms[i] = f.Table.Fence(name, f.Token)
	}
	return ms
}

// Statement returns SQL that updates one row if the only lock is held under the token, and otherwise none.
func (f Fence) Statement(dialect databasepb.DatabaseDialect) spanner.Statement {
	return f.Table.FenceStatement(dialect, f.Names[0], f.Token)
}

// Apply is Client.Apply, serializable and behind the fence.
func (f Fence) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return Fences{f}.Apply(ctx, ms, opts...)
}

// Fences are in one database, each under a token of its own.
type Fences []Fence

// Apply is Client.Apply, serializable and behind every fence.
func (fs Fences) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	began := time.Now()
	if answered, at, err := fs.withoutDatabase(ctx, began); answered {
		return at, err
	}
	opts = append(slices.Clip(opts), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE))
	at, err := again(ctx, func() (time.Time, error) {
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

// withoutDatabase answers if no database needs to be asked, or can be.
func (fs Fences) withoutDatabase(ctx context.Context, began time.Time) (answered bool, at time.Time, err error) {
	if len(fs) == 0 {
		return true, at, errNoFence
	}
	inMemory := 0
	for _, f := range fs {
		if f.Token > 0 && f.Table.DB != nil {
			continue
		}
		if at, err = f.withoutDatabase(ctx, began); err != nil {
			return true, at, err
		}
		inMemory++
	}
	if inMemory == len(fs) {
		return true, at, nil
	}
	for _, f := range fs[1:] {
		if one, other := databaseOf(fs[0]), databaseOf(f); one != other {
			return true, time.Time{}, f.Wrap(fmt.Errorf("a commit is in one database, and these locks are in two: %s and %s", one, other))
		}
	}
	return false, at, nil
}

func databaseOf(f Fence) string {
	if f.Table.DB == nil {
		return "memory"
	}
	return f.Table.DB.DatabaseName()
}

// classify returns the error of the first fence whose token is not valid, or err.
func (fs Fences) classify(ctx context.Context, began time.Time, err error) error {
	for _, f := range fs {
		if found := f.classify(ctx, began, err); found != err {
			return found
		}
	}
	return err
}

// ReadWriteTransaction is Client.ReadWriteTransaction, serializable and behind the fence. An error of fn is
// returned as it is.
func (f Fence) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	began := time.Now()
	if f.Token <= 0 || f.Table.DB == nil {
		return f.withoutDatabase(ctx, began)
	}
	var refused error
	at, err := again(ctx, func() (time.Time, error) {
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

// again repeats a transaction that the emulator has forgotten, until ctx ends, as the client does if Spanner aborts
// one.
func again(ctx context.Context, run func() (time.Time, error)) (time.Time, error) {
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

// withoutDatabase answers by the token alone: the zero token needs no request, and a table in memory takes no writes.
func (f Fence) withoutDatabase(ctx context.Context, began time.Time) (time.Time, error) {
	switch {
	case f.Token <= 0:
		return time.Time{}, f.fenced(ctx, began, nil)
	case f.Table.Memory == nil:
		return time.Time{}, f.Wrap(errInMemory)
	}
	valid, err := table.Table{Store: f.Table.Memory}.Valid(ctx, f.Token, f.Names...)
	switch {
	case err != nil:
		return time.Time{}, f.Wrap(err)
	case !valid:
		return time.Time{}, f.fenced(ctx, began, errInMemory)
	}
	return time.Now(), nil
}

// classify finds out whether a commit was refused because of the fence, or of a newer holder's writes, or because of
// the caller's own rows. Only the lease rows themselves decide.
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
		return fmt.Errorf("%w (whether it was fenced is not known: %w)", err, f.Wrap(readErr))
	case valid:
		return err
	}
	return f.fenced(ctx, began, err)
}

// fenced is the error of a commit that began then. It was refused with err, or, if that is nil, was not tried.
func (f Fence) fenced(ctx context.Context, began time.Time, err error) error {
	refused := fmt.Errorf("token %v: %w", f.Token, ErrFenced)
	if err != nil {
		refused = fmt.Errorf("%w: %w", refused, err)
	}
	if f.Wrap == nil { // of nothing
		return refused
	}
	refused = f.Wrap(refused)
	f.About.Fenced(ctx, f.Token, began, refused)
	return refused
}

// refusal reports whether a commit failed because of the database's contents.
func refusal(err error) bool {
	switch spanner.ErrCode(err) {
	case codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.InvalidArgument:
		return true
	}
	return false
}
