package spindle

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// Fence returns a mutation that changes nothing and lets a commit succeed only while token is good:
// from the election until the lock is released or claimed by another. Add it to a transaction of your
// own in the database of the lock. When it fails, so does the whole commit, with NOT_FOUND of a row
// in the lock's table. It costs no RPC, and may be called from any goroutine.
//
// A fenced commit of an old token never lands after a newer term has begun, whatever any clock says.
func (l *Lock) Fence(token Token) *spanner.Mutation {
	return l.spanner.Fence(l.name, table.Token(token))
}

// Apply is Client.Apply with the fence added to ms. It returns an error that errors.Is(err, ErrFenced)
// exactly when the token is not good any more; a NOT_FOUND of your own rows stays what it is. After
// ErrFenced nothing of ms was applied (but with spanner.ApplyAtLeastOnce an earlier attempt may have been,
// while the token was good); after other errors, such as a timeout, it may have been.
func (l *Lock) Apply(ctx context.Context, token Token, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	fenced := append([]*spanner.Mutation{l.Fence(token)}, ms...)
	at, err := l.db.Apply(ctx, fenced, opts...)
	return at, l.tellFenced(ctx, token, err)
}

// ReadWriteTransaction is Client.ReadWriteTransaction with the fence added to what fn writes. It
// returns what fn returns, or an error that errors.Is(err, ErrFenced) exactly when the token is not
// good any more. The fence is checked by the commit: fn may read before that, but nothing that it
// writes lands under a token that is not good.
func (l *Lock) ReadWriteTransaction(ctx context.Context, token Token, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if l.err != nil {
		return time.Time{}, l.err
	}
	var refused error
	at, err := l.db.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		if refused = fn(ctx, txn); refused != nil {
			return refused
		}
		return txn.BufferWrite([]*spanner.Mutation{l.Fence(token)})
	})
	if refused != nil {
		return at, err // fn's own error is never about the fence
	}
	return at, l.tellFenced(ctx, token, err)
}

// tellFenced finds out whether a commit failed because of the fence or because of another row that
// does not exist: both are NOT_FOUND, and only the lease row itself tells.
func (l *Lock) tellFenced(ctx context.Context, token Token, err error) error {
	if !table.RowMissing(err) {
		return err
	}
	// The commit may have taken all the time that ctx had.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	good, readErr := l.table.Good(ctx, l.name, table.Token(token))
	switch {
	case readErr != nil:
		return fmt.Errorf("%w (whether it was fenced is not known: %w)", err, l.wrap("fence", readErr))
	case good:
		return err
	}
	return l.wrap("fence", fmt.Errorf("token %v: %w: %w", token, ErrFenced, err))
}
