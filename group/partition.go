package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

// ErrMoved is the cause of the context of work whose partition is another member's from now on.
var ErrMoved = errors.New("the partition moves to another member")

// Partition is one partition under one token: as work is given it, for as long as its context lasts. Its methods may be
// called from any goroutine. The zero Partition is none: what it writes is refused.
type Partition struct {
	name  string
	fence fence.Fence
}

// Name is the partition's, as the list has it.
func (p Partition) Name() string { return p.name }

// Token is the fencing token that this member has the partition under. Tokens of a partition only grow.
func (p Partition) Token() spindle.Token { return spindle.Token(p.fence.Token) }

// Fence returns a mutation that changes nothing and lets a commit succeed only while this member has not given the
// partition back, and no other has claimed it. See spindle.Lock.Fence.
func (p Partition) Fence() *spanner.Mutation {
	if p.fence.Names == nil {
		return p.fence.Table.Fence(p.name, 0) // of no partition: it refuses whatever it is in
	}
	return p.fence.Mutations()[0]
}

// FenceStatement is spindle.Lock.FenceStatement for the partition. That of the zero Partition is empty, which Spanner
// refuses.
func (p Partition) FenceStatement(dialect databasepb.DatabaseDialect) spanner.Statement {
	if p.fence.Names == nil {
		return spanner.Statement{}
	}
	return p.fence.Statement(dialect)
}

// Apply is Client.Apply in a serializable transaction, with the fence added to ms: a checkpoint and its fence are one
// commit. Errors are those of spindle.Lock.Apply: errors.Is(err, spindle.ErrFenced) is true exactly when the token is
// not good any more.
func (p Partition) Apply(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	return p.fence.Apply(ctx, ms, opts...)
}

// ReadWriteTransaction is Client.ReadWriteTransaction, serializable and with the fence added to what fn writes. See
// spindle.Lock.ReadWriteTransaction.
func (p Partition) ReadWriteTransaction(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	return p.fence.ReadWriteTransaction(ctx, fn)
}

// holding is one time of having a partition. The loop owns what is not said to be others'.
type holding struct {
	*share
	in    *term
	token table.Token

	ctx     context.Context // ends when it is told, or the term does
	cancel  context.CancelCauseFunc
	told    bool          // not acted on any more: once the work has returned, it is given
	since   elect.Instant // when it was told
	lost    bool          // the table does not show it: it is not given, but looked after
	working bool          // its work has not returned
}

// good reports whether it may be acted on.
func (h *holding) good() bool {
	return h.ctx.Err() == nil && h.in.lease.Held() && h.in.config.Clock.Now().Since(*h.in.looked.Load()) < h.in.limit()
}

func (h *holding) partition() Partition {
	g := h.in.Group
	return Partition{h.name, fence.Fence{Table: g.spanner, Names: []string{h.lock}, Token: h.token, About: g.about, Wrap: func(err error) error {
		return g.wrap("fence", fmt.Errorf("partition %q: %w", h.name, err))
	}}}
}

// tell ends the work's context, for good: a token whose work was told is never acted on again.
func (h *holding) tell(reason error) {
	h.told, h.since = true, h.in.config.Clock.Now()
	h.held.Store(nil)
	h.cancel(reason)
}
