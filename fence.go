package spindle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// Fence returns a mutation that changes nothing and lets a commit succeed only while token is good:
// from the election until the lock is released or claimed by another. Add it to a serializable
// transaction of your own in the database of the lock, before your own mutations. When it fails, so does
// the whole commit, with NOT_FOUND of a row in the lock's table. It costs no RPC, and may be called from
// any goroutine.
//
// A fenced commit of an old token never lands after a newer term has begun, whatever any clock says.
func (l *Lock) Fence(token Token) *spanner.Mutation {
	return l.spanner.Fence(l.name, table.Token(token))
}

// Apply is Client.Apply in a serializable transaction, with the fence added to ms. If the commit is refused,
// it returns an error that errors.Is(err, ErrFenced) exactly when the token is not good any more, whatever
// else it was refused for: a row that a newer leader has made or deleted, say. Otherwise an error about
// your own rows stays what it is. After ErrFenced nothing of ms was applied (but with
// spanner.ApplyAtLeastOnce an earlier attempt may have been, while the token was good); after other
// errors, such as a timeout or a reply without a timestamp, it may have been.
func (l *Lock) Apply(ctx context.Context, token Token, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	fenced := append([]*spanner.Mutation{l.Fence(token)}, ms...)
	opts = append(slices.Clip(opts), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE))
	at, err := table.Acknowledged(l.db.Apply(ctx, fenced, opts...))
	return at, l.tellFenced(ctx, token, err)
}

// ReadWriteTransaction is Client.ReadWriteTransaction, serializable and with the fence added to what fn
// writes. It returns what fn returns, or an error as Apply does. The fence is checked by the commit: fn may
// read before that, but nothing that it writes lands under a token that is not good.
func (l *Lock) ReadWriteTransaction(ctx context.Context, token Token, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	var refused error
	resp, err := l.db.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		if refused = txn.BufferWrite([]*spanner.Mutation{l.Fence(token)}); refused == nil {
			refused = fn(ctx, txn)
		}
		return refused
	}, spanner.TransactionOptions{IsolationLevel: sppb.TransactionOptions_SERIALIZABLE})
	if refused != nil {
		return resp.CommitTs, err // fn's own error is never about the fence
	}
	at, err := table.Acknowledged(resp.CommitTs, err)
	return at, l.tellFenced(ctx, token, err)
}

// tellFenced finds out whether a commit was refused because of the fence, or what a newer leader wrote, or
// because of rows that the caller is to blame for. Only the lease row itself tells.
func (l *Lock) tellFenced(ctx context.Context, token Token, err error) error {
	if !refusal(err) {
		return err
	}
	// The commit may have taken all the time that ctx had.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	good, readErr := l.table.Good(ctx, table.Token(token), l.name)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w (whether it was fenced is not known: %w)", err, l.wrap("fence", readErr))
	case good:
		return err
	}
	return l.wrap("fence", fmt.Errorf("token %v: %w: %w", token, ErrFenced, err))
}

// refusal reports whether a commit failed for what is in the database.
func refusal(err error) bool {
	switch spanner.ErrCode(err) {
	case codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.InvalidArgument:
		return true
	}
	return false
}
