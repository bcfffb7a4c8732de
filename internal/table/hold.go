package table

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Heartbeat extends the leases of the named locks in one blind commit. It fails with ErrSuperseded if one of the locks
// has no lease row for token. The commit does no harm if it is applied late or more than once, because it can only
// extend the lease of a token that is still valid.
func (t Table) Heartbeat(ctx context.Context, token Token, names ...string) error {
	return t.under(ctx, "heartbeat", token, names, func(name string) []Write {
		return []Write{requireLease(name, token), {Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}}}
	})
}

// under makes one blind commit for all the names. It fails with ErrSuperseded if the token is no longer valid.
func (t Table) under(ctx context.Context, step string, token Token, names []string, writes func(name string) []Write, also ...Write) error {
	var all []Write
	for _, name := range names {
		all = append(all, writes(name)...)
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, step, append(all, also...)))
}

type apartKey struct{}

// Apart returns a context for a request that a Store must not combine with many others: a poll with none, because others
// wait for it, and a heartbeat with fewer the larger n is. For a heartbeat, n is how many attempts before it were not
// acknowledged, and the others in its commit may be the reason.
func Apart(ctx context.Context, n int) context.Context { return context.WithValue(ctx, apartKey{}, n) }

// ApartOf returns the number that Apart has put into ctx, or 0.
func ApartOf(ctx context.Context) int {
	n, _ := ctx.Value(apartKey{}).(int)
	return n
}

// Release frees the named locks in one blind commit. It fails with ErrSuperseded if the token is no longer valid, so it
// never ends the term of a later holder.
func (t Table) Release(ctx context.Context, token Token, names ...string) error {
	return t.release(ctx, "release", token, 0, names)
}

// ReleaseFree is like Release, but leaves a free row for each lock.
func (t Table) ReleaseFree(ctx context.Context, token Token, lease time.Duration, names ...string) error {
	return t.release(ctx, "release", token, lease, names)
}

// Finish is like Release or, if lease is not 0, like ReleaseFree. It also records that id has done the work of due. If
// the token is no longer valid, Finish records nothing, but an earlier attempt may have succeeded.
func (t Table) Finish(ctx context.Context, token Token, lease time.Duration, name string, due Due, id string) error {
	return t.release(ctx, "finish", token, lease, []string{name}, record(name, token, due, id))
}

// release leaves free rows unless lease is 0, or a row with a free row's key already exists, for example after a manual
// change.
func (t Table) release(ctx context.Context, step string, token Token, lease time.Duration, names []string, done ...Write) error {
	done = append(done, t.also...)
	if lease > 0 {
		err := t.under(ctx, step, token, names, func(name string) []Write { return refree(LeaseRef{name, token}, lease, Now) }, done...)
		if !errors.Is(err, ErrExists) {
			return err
		}
	}
	return t.under(ctx, step, token, names, func(name string) []Write { return release(LeaseRef{name, token}) }, done...)
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
	case answered(err) == noRow:
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
