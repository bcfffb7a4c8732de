package spindle

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Term is one term of a Lock. The leader function receives it as an argument (see WithLeader). A Term's methods may be
// called from any goroutine, even after the term has ended. Its writes are rejected once its token is no longer valid.
// The zero Term belongs to no lock.
type Term struct{ under options.Lead }

// Token returns the term's fencing token.
func (t Term) Token() Token { return Token(t.under.Fence.Token) }

// Left returns the time until the term ends if no further heartbeat is acknowledged. Like HasLock, it uses the local
// clock. The result is zero or negative once the term has ended or its work has stalled.
func (t Term) Left() time.Duration {
	if t.under.Term == nil {
		return 0
	}
	return t.under.Left()
}

// Progress tells the lock that the leader function is making progress (see WithStall). Call it in every step of the
// work: it is cheap, because it makes no RPC. Once the leader function's ctx has ended, Progress returns the cause, so
// that a loop can stop. For the zero Term, Progress always returns an error.
func (t Term) Progress() error { return t.under.Stall.Progress() }

// Fence is like Lock.Fence, with the term's token.
func (t Term) Fence() *spanner.Mutation {
	if t.under.Term == nil {
		return table.Spanner{}.Fence("", 0) // for no lock: Spanner rejects every commit that contains it
	}
	return t.under.Fence.Mutations()[0]
}

// FenceStatement is like Lock.FenceStatement, with the term's token. For the zero Term, the statement is empty, and
// Spanner rejects it.
func (t Term) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if t.under.Term == nil {
		return spanner.Statement{}
	}
	return t.under.Fence.Statement(dialect)
}

// Apply is like Lock.Apply, with the term's token.
func (t Term) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return t.under.Fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like Lock.ReadWriteTransaction, with the term's token.
func (t Term) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return t.under.Fence.ReadWriteTransaction(ctx, fn)
}

// StepDown is like Lock.StepDown, but only for this term. If the term has ended, the error wraps ErrNotLeader.
func (t Term) StepDown(ctx context.Context) error {
	if t.under.Term == nil {
		return ErrNotLeader
	}
	return t.under.StepDown(ctx)
}

// FenceIn implements Holding.
func (t Term) FenceIn(context.Context) Fence { return t.under.Fence }
