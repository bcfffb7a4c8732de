package table

import (
	"context"
	"errors"
	"fmt"
)

// Heartbeat extends the lease of every name under token, in one blind commit: the lease rows must
// exist, which is the whole check. It fails with ErrSuperseded where one does not. It may be applied
// late or again: it can only extend a token that is still good.
func (t Table) Heartbeat(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, good(name, token), Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}})
	}
	return superseded(t.Store.Commit(ctx, "heartbeat", writes))
}

// Release frees every name under token, in one blind commit. It fails with ErrSuperseded where the
// token is not good any more, so nobody else's term is ever released.
func (t Table) Release(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes,
			good(name, token),
			Write{Kind: Delete, Name: LeaseKey(name, token)},
			Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, nil}, {ColWriter, nil}}})
	}
	return superseded(t.Store.Commit(ctx, "release", writes))
}

// good makes a commit fail unless name is still held under token.
func good(name string, token Token) Write { return Write{Kind: Update, Name: LeaseKey(name, token)} }

func superseded(err error) error {
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("%w: %w", ErrSuperseded, err)
	}
	return err
}
