package table

import (
	"context"
	"strings"
)

// When an operator takes a lock away from its holder, Break also writes a row next to the lock row, such as
// "nightly!broken". The row's token is the last token that was taken away, and its heartbeat is the time of the break.
// With this row, a holder whose release is refused can tell whether an earlier attempt of that release was applied:
// until the holder's lease expires, a candidate can claim the lock only after the holder's own release or after a
// break.

const brokenSuffix = "!broken"

// Break releases a lock on behalf of an operator rather than the holder. It also writes the lock's "!broken" row.
func (t Table) Break(ctx context.Context, token Token, name string) error {
	writes := append(release(LeaseRef{name, token}), Write{Kind: Put, Name: name + brokenSuffix, Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}}})
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "break", writes))
}

// GivenBack reports whether the holder of the names under token has released them. The caller must have found the token
// invalid before its lease expired. GivenBack returns true if every lock row exists with a later token, and no lock was
// broken under this token or a later one. A candidate whose id is not empty can reclaim its own lock without a release,
// so a lock that id now holds does not count as released.
func (t Table) GivenBack(ctx context.Context, token Token, id string, names ...string) (bool, error) {
	var keys Keys
	for _, name := range names {
		keys.Names = append(keys.Names, name, name+brokenSuffix)
	}
	rows, _, err := t.Store.Read(ctx, "released", Strong, keys)
	if err != nil {
		return false, err
	}
	byName := index(rows)
	for _, name := range names {
		row, exists := byName[name]
		reclaimed := id != "" && row.Writer == id && !row.Heartbeat.IsZero()
		if !exists || reclaimed || TokenAt(row.Token) <= token || TokenAt(byName[name+brokenSuffix].Token) >= token {
			return false, nil
		}
	}
	return true, nil
}

// beside returns the lock to which an auxiliary row belongs. Such a row records either the key that was done last under
// the lock or that the lock was broken. beside reports false for any other row.
func beside(key string) (lock string, ok bool) {
	for _, suffix := range []string{doneSuffix, brokenSuffix} {
		if lock, ok = strings.CutSuffix(key, suffix); ok {
			return lock, true
		}
	}
	return "", false
}
