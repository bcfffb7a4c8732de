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
	"github.com/spindle-lock/spindle/internal/loop"
)

// These are causes with which the group cancels the context of a partition's work. WithWork lists all possible causes.
var (
	ErrMoved  = errors.New("the partition is moving to another member")
	ErrPaused = errors.New("the program has paused the partition") // see Group.Pause
	ErrLetGo  = errors.New("the program has let the partition go") // see Group.LetGo
)

// Partition is a partition that this member owns under one token. The group passes it to the function set by WithWork.
// The function can use it until ctx is canceled. The methods of a Partition may be called from any goroutine. The zero
// Partition owns nothing, so its writes fail.
type Partition struct {
	name  string
	fence fence.Fence
	stall *loop.Stall
}

// Name returns the partition's name, as given in the list.
func (p Partition) Name() string { return p.name }

// Token returns the fencing token under which this member owns the partition. Each token is larger than all earlier
// tokens of the same partition.
func (p Partition) Token() spindle.Token { return spindle.Token(p.fence.Token) }

// Progress tells the group that the work is making progress (spindle.WithStall). See spindle.Term.Progress.
func (p Partition) Progress() error { return p.stall.Progress() }

// Fence returns a mutation that changes nothing, but makes the commit that contains it fail if this member has released
// the partition or another member has claimed it. See spindle.Lock.Fence.
func (p Partition) Fence() *spanner.Mutation {
	if p.fence.Names == nil {
		return p.fence.Table.Fence(p.name, 0) // a fence that no partition can satisfy, so every commit fails
	}
	return p.fence.Mutations()[0]
}

// FenceStatement is like spindle.Lock.FenceStatement, but for a partition. For the zero Partition, it returns an empty
// statement, which Spanner rejects.
func (p Partition) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if p.fence.Names == nil {
		return spanner.Statement{}
	}
	return p.fence.Statement(dialect)
}

// Apply is like spanner.Client.Apply, but it adds the fence to the mutations and makes the transaction serializable. A
// program can use it to write a checkpoint and check the fence in the same commit. Apply returns the same errors as
// spindle.Lock.Apply, so errors.Is(err, spindle.ErrFenced) is true only if the token is not valid.
func (p Partition) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return p.fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is like spanner.Client.ReadWriteTransaction, but it adds the fence to fn's writes and makes the
// transaction serializable. See spindle.Lock.ReadWriteTransaction.
func (p Partition) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return p.fence.ReadWriteTransaction(ctx, fn)
}

// FenceIn implements spindle.Holding.
func (p Partition) FenceIn(context.Context) spindle.Fence { return p.fence }

func (a *assignment) partition() Partition {
	g := a.in.m.g
	f := fence.Fence{Table: g.spanner, Names: []string{a.entry.Lock}, Token: a.hold.Token, About: g.about, Wrap: func(err error) error {
		return g.wrap("fence", fmt.Errorf("partition %q: %w", a.entry.Name, err))
	}, Gone: func() {
		if a.ctx.Err() == nil { // otherwise, the loop is already ending the assignment
			a.end(spindle.ErrSuperseded)
		}
	}}
	return Partition{a.entry.Name, f, a.stall}
}

// end ends the work on the partition, because the work has stalled, or because a read has shown that the partition's
// lease row is missing. Any goroutine may call end.
func (a *assignment) end(reason error) {
	a.cancel(reason)
	a.in.m.g.inbox.Put(outcome{of: a, must: reason})
}
