package table

import (
	"context"
	"errors"
	"fmt"
)

// Heartbeat extends the leases of the named locks in one blind commit. It fails with ErrSuperseded if one of the locks
// has no lease row for token. The commit does no harm if it is applied late or more than once, because it can only
// extend the lease of a token that is still valid.
func (t Table) Heartbeat(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, requireLease(name, token), Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}})
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, "heartbeat", writes))
}

type attemptKey struct{}

// Attempt returns a context for a heartbeat that is sent after n others that were not acknowledged. A Store that combines
// heartbeats combines fewer of them then, because one of the others may be the reason.
func Attempt(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, attemptKey{}, n)
}

// AttemptOf returns the number that Attempt has put into ctx, or 0.
func AttemptOf(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

type aloneKey struct{}

// Alone returns a context for a poll that others wait for, so that a Store that combines polls sends it at once.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

// IsAlone reports whether Alone has returned ctx.
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }

// Release frees the named locks in one blind commit. It fails with ErrSuperseded if the token is no longer valid, so it
// never ends the term of a later holder.
func (t Table) Release(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, release(LeaseRef{name, token})...)
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, "release", append(writes, t.also...)))
}

func release(h LeaseRef) []Write {
	return append(consume(h.Name, h.Token), Write{Kind: Update, Name: h.Name, Set: released})
}

// consume returns the writes that delete the lease row or the free row of a token. Their commit fails if that row does
// not exist.
func consume(name string, token Token) []Write {
	return []Write{requireLease(name, token), {Kind: Delete, Name: LeaseKey(name, token)}}
}

// released is what a release writes into the lock row. The token becomes the time of the release, so that Prune can
// compute how long ago that was. No lease row has this token.
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

// requireLease returns a write that makes its commit fail unless name is still held under token.
func requireLease(name string, token Token) Write {
	return Write{Kind: Update, Name: LeaseKey(name, token)}
}

// superseded wraps the error of a commit in ErrSuperseded if the commit failed because the token is no longer valid. If
// the error does not say what is missing, superseded reads the lease rows to find out. It returns other errors
// unchanged.
func (t Table) superseded(ctx context.Context, token Token, names []string, err error) error {
	switch {
	case rowIsMissing(err):
		return ErrSuperseded // err has no further information
	case errors.Is(err, ErrMissing):
		return gone{err}
	case errors.Is(err, ErrNotFound):
		if valid, unknown := t.Valid(ctx, token, names...); !valid && unknown == nil {
			return fmt.Errorf("%w: %w", ErrSuperseded, err)
		}
	}
	return err
}

// gone is the ErrSuperseded of a token whose whole table is gone, which says so.
type gone struct{ error }

func (g gone) Error() string        { return "the lock table is gone: " + g.error.Error() }
func (g gone) Is(target error) bool { return target == ErrSuperseded }
func (g gone) Unwrap() error        { return g.error }
