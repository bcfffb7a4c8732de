package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
)

// The causes with which the context of a partition's work ends, in addition to the ones that a lock has.
var (
	ErrMoved  = errors.New("the partition is moving to another member")
	ErrPaused = errors.New("the program has paused the partition") // see Group.Pause
	ErrLetGo  = errors.New("the program has let the partition go") // see Group.LetGo
)

// Partition is one partition, held under one token. The group passes it to the partition's work, which can use it until
// the context of the work ends. Its methods may be called from any goroutine. The zero Partition holds no lock, so its
// writes are refused.
type Partition struct {
	name  string
	fence fence.Fence
}

// Name returns the partition's name, as given in the list.
func (p Partition) Name() string { return p.name }

// Token returns the fencing token under which this member has the partition. A later token of the same partition is
// always larger.
func (p Partition) Token() spindle.Token { return spindle.Token(p.fence.Token) }

// Fence returns a mutation that changes nothing, but makes its commit fail if this member has released the partition or
// another member has claimed it. See spindle.Lock.Fence.
func (p Partition) Fence() *spanner.Mutation {
	if p.fence.Names == nil {
		return p.fence.Table.Fence(p.name, 0) // the fence of no partition, which every commit fails
	}
	return p.fence.Mutations()[0]
}

// FenceStatement is like spindle.Lock.FenceStatement, but for the partition. For the zero Partition it returns an empty
// statement, which Spanner refuses.
func (p Partition) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if p.fence.Names == nil {
		return spanner.Statement{}
	}
	return p.fence.Statement(dialect)
}

// Apply is like spanner.Client.Apply, but the transaction is serializable, and the fence is added to ms. A checkpoint
// can thus be written in the same commit as its fence. The errors are the same as for spindle.Lock.Apply:
// errors.Is(err, spindle.ErrFenced) is true exactly if the token is no longer valid.
func (p Partition) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return p.fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spanner.Client.ReadWriteTransaction, but the transaction is serializable, and the fence
// is added to fn's writes. See spindle.Lock.ReadWriteTransaction.
func (p Partition) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return p.fence.ReadWriteTransaction(ctx, fn)
}

// FenceIn implements spindle.Holding.
func (p Partition) FenceIn(context.Context) fence.Fence { return p.fence }

func (a *assignment) partition() Partition {
	g := a.in.m.Group
	return Partition{a.name, fence.Fence{Table: g.spanner, Names: []string{a.lock}, Token: a.token, About: g.about, Wrap: func(err error) error {
		return g.wrap("fence", fmt.Errorf("partition %q: %w", a.name, err))
	}}}
}
