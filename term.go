package spindle

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Term is one term of a Lock, the argument of the leader function (WithLeader). Its methods may be called from any
// goroutine, even when the term is over: its writes are refused then. The zero Term has no lock.
type Term struct{ under options.Lead }

// Token returns the term's fencing token.
func (t Term) Token() Token { return Token(t.under.Fence.Token) }

// Left returns the time until the term ends, unless a heartbeat is acknowledged before: by the local clock, like
// HasLock. It is not positive if the term is over.
func (t Term) Left() time.Duration {
	if t.under.Term == nil {
		return 0
	}
	return t.under.Left()
}

// Fence is Lock.Fence under the term's token.
func (t Term) Fence() *spanner.Mutation {
	if t.under.Term == nil {
		return table.Spanner{}.Fence("", 0) // of no lock: every commit with it is refused
	}
	return t.under.Fence.Mutations()[0]
}

// FenceStatement is Lock.FenceStatement under the term's token. For the zero Term it is empty, and Spanner refuses it.
func (t Term) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if t.under.Term == nil {
		return spanner.Statement{}
	}
	return t.under.Fence.Statement(dialect)
}

// Apply is Lock.Apply under the term's token.
func (t Term) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return t.under.Fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is Lock.ReadWriteTransaction under the term's token.
func (t Term) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return t.under.Fence.ReadWriteTransaction(ctx, fn)
}

// StepDown is Lock.StepDown for this term only: if it is over, the error is ErrNotLeader.
func (t Term) StepDown(ctx context.Context) error {
	if t.under.Term == nil {
		return ErrNotLeader
	}
	return t.under.StepDown(ctx)
}

// FenceIn implements Holding.
func (t Term) FenceIn(context.Context) fence.Fence { return t.under.Fence }
