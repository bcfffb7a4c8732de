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

// Causes of the context of a partition's work, beside a lock's own reasons.
var (
	ErrMoved  = errors.New("the partition moves to another member")
	ErrPaused = errors.New("the program has paused the partition") // by Group.Pause
	ErrLetGo  = errors.New("the program has let the partition go") // by Group.LetGo
)

// Partition is one partition under one token: the argument of its work, for as long as its context lasts. Its methods
// may be called from any goroutine. The zero Partition has no lock: its writes are refused.
type Partition struct {
	name  string
	fence fence.Fence
}

// Name returns the partition's name in the list.
func (p Partition) Name() string { return p.name }

// Token returns the fencing token under which this member has the partition. Tokens of a partition only grow.
func (p Partition) Token() spindle.Token { return spindle.Token(p.fence.Token) }

// Fence returns a mutation that changes nothing and lets a commit succeed only while this member has not given the
// partition back, and no other has claimed it. See spindle.Lock.Fence.
func (p Partition) Fence() *spanner.Mutation {
	if p.fence.Names == nil {
		return p.fence.Table.Fence(p.name, 0) // of no partition: every commit with it is refused
	}
	return p.fence.Mutations()[0]
}

// FenceStatement is spindle.Lock.FenceStatement for the partition. For the zero Partition it is empty, and Spanner
// refuses it.
func (p Partition) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if p.fence.Names == nil {
		return spanner.Statement{}
	}
	return p.fence.Statement(dialect)
}

// Apply is Client.Apply in a serializable transaction, with the fence added to ms: a checkpoint and its fence are one
// commit. Its errors are as in spindle.Lock.Apply: errors.Is(err, spindle.ErrFenced) is true exactly when the token is
// not valid any more.
func (p Partition) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return p.fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is Client.ReadWriteTransaction, serializable and with the fence added to what fn writes. See
// spindle.Lock.ReadWriteTransaction.
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
