package table

import (
	"context"
	"errors"
	"time"
)

// Release frees the named locks in one blind commit. It never ends the term of a later holder.
func (t Table) Release(ctx context.Context, token Token, names ...string) error {
	return t.release(ctx, "release", token, 0, Now, names)
}

// ReleaseFree is like Release, but leaves a free row for each lock.
func (t Table) ReleaseFree(ctx context.Context, token Token, lease time.Duration, names ...string) error {
	return t.release(ctx, "release", token, lease, Now, names)
}

// Finish is like Release or, if lease is not 0, like ReleaseFree. It also records that the holder with this id has done
// the work that was due. If the token is no longer valid, Finish records nothing, but an earlier attempt may have
// succeeded.
func (t Table) Finish(ctx context.Context, token Token, lease time.Duration, name string, due Due, id string) error {
	return t.release(ctx, "finish", token, lease, Now, []string{name}, record(name, token, due, id))
}

// release frees the locks. It leaves free rows if lease is positive. If the key of a free row is already in use, for
// example after a manual change, it leaves none. The argument since is the release time that the free rows record.
func (t Table) release(ctx context.Context, step string, token Token, lease time.Duration, since any, names []string, also ...Write) error {
	also = append(also, t.also...)
	if lease > 0 {
		err := t.under(ctx, step, token, names, func(h LeaseRef) []Write { return refree(h, lease, since) }, also...)
		if !errors.Is(err, ErrExists) {
			return err
		}
	}
	return t.under(ctx, step, token, names, release, also...)
}

// release returns the writes that free a lock. The token becomes the time of the release, so that the row shows when
// the lock was released. No lease row has this token.
func release(h LeaseRef) []Write {
	return []Write{{Kind: Delete, Name: h.Key()}, {Kind: Update, Name: h.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}, {ColWriter, nil}}}}
}

// An operator can take a lock away from its holder with Break. Break also writes a row such as "nightly!broken". The
// row's token is the token that the holder has lost, and its heartbeat is the time of the break.
//
// If a holder's release is refused, this row helps the holder to tell whether an earlier attempt at the same release
// was applied. Until the holder's lease expires, a candidate with another id can claim the lock only after the holder's
// own release or after a break. So if the lock has a later token and there was no break, the earlier attempt was
// applied.

const brokenSuffix = "!broken"

func BrokenRow(name string) string { return name + brokenSuffix }

// Break releases a lock on behalf of an operator rather than the holder.
func (t Table) Break(ctx context.Context, token Token, name string) error {
	return t.under(ctx, "break", token, []string{name}, release,
		Write{Kind: Put, Name: BrokenRow(name), Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}}})
}

// Broken reports whether an operator has released the lock that was held under the token.
func (t Table) Broken(ctx context.Context, token Token, name string) (bool, error) {
	all, err := t.Read(ctx, "released", Strong, Keys{Names: []string{BrokenRow(name)}})
	return err == nil && TokenAt(all.byName[BrokenRow(name)].Token) == token, err
}

// GivenBack reports whether the caller itself has released the named locks, which it held under the token. The caller
// must have learned before the end of its lease that the token is no longer valid. GivenBack returns true if every lock
// row exists with a later token, and no lock was broken under this token or a later one.
//
// If id is not empty, GivenBack also returns false if one of the locks is now claimed or held under this id. A
// candidate with WithReclaim can claim a lock that is held under its own id, even if the lock was not released.
func (t Table) GivenBack(ctx context.Context, token Token, id string, names ...string) (bool, error) {
	var keys Keys
	for _, name := range names {
		keys.Names = append(keys.Names, name, BrokenRow(name))
	}
	all, err := t.Read(ctx, "released", Strong, keys)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		row, exists := all.byName[name]
		reclaimed := id != "" && row.Writer == id && !row.Heartbeat.IsZero()
		if !exists || reclaimed || TokenAt(row.Token) <= token || TokenAt(all.byName[BrokenRow(name)].Token) >= token {
			return false, nil
		}
	}
	return true, nil
}
