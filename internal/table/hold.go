package table

import (
	"context"
	"errors"
	"fmt"
)

// Heartbeat extends the lease of every name under token, in one blind commit: the lease rows must
// exist, which is the whole check. It fails with ErrSuperseded if one does not. It may be applied
// late or again: it can only extend a token that is still valid.
func (t Table) Heartbeat(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, requireLease(name, token), Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}})
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, "heartbeat", writes))
}

// Release frees every name under token, in one blind commit. It fails with ErrSuperseded if the
// token is not valid any more, so nobody else's term is ever released.
func (t Table) Release(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, release(LeaseRef{name, token})...)
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, "release", writes))
}

func release(h LeaseRef) []Write {
	return append(consume(h.Name, h.Token), Write{Kind: Update, Name: h.Name, Set: released})
}

// consume deletes the lease row, or the free row, of a token, and makes the commit fail unless it is there.
func consume(name string, token Token) []Write {
	return []Write{requireLease(name, token), {Kind: Delete, Name: LeaseKey(name, token)}}
}

// released is the lock row after a release. Its token is the time of the release, which Prune goes by, and no lease row
// has it.
var released = []Cell{{ColHeartbeat, nil}, {ColToken, Now}, {ColWriter, nil}}

// Valid reports whether all names are held under token.
func (t Table) Valid(ctx context.Context, token Token, names ...string) (bool, error) {
	var keys Keys
	for _, name := range names {
		keys.Names = append(keys.Names, LeaseKey(name, token))
	}
	rows, _, err := t.Store.Read(ctx, "valid", Strong, keys)
	return len(rows) == len(names), err
}

// requireLease makes a commit fail unless name is still held under token.
func requireLease(name string, token Token) Write {
	return Write{Kind: Update, Name: LeaseKey(name, token)}
}

// superseded finds out whether a commit failed because the token is no longer valid. If the error does not tell, it
// reads the lease rows.
func (t Table) superseded(ctx context.Context, token Token, names []string, err error) error {
	switch {
	case rowIsMissing(err):
		return ErrSuperseded // the error says no more than that
	case errors.Is(err, ErrMissing):
		return fmt.Errorf("%w: %w", ErrSuperseded, err)
	case errors.Is(err, ErrNotFound):
		if valid, unknown := t.Valid(ctx, token, names...); !valid && unknown == nil {
			return fmt.Errorf("%w: %w", ErrSuperseded, err)
		}
	}
	return err
}
