package table

import (
	"context"
	"strings"
)

// A lock that somebody took away from its holder has a row of its own beside the lock's: "nightly!broken". Its token is
// the last one taken away, its heartbeat is when. So a holder whose release is refused can tell whether an earlier
// attempt of its own was applied: before its lease is over, only its own release, or a break, lets another claim the
// lock.

const brokenSuffix = "!broken"

// Break is Release by an operator, not the holder. It leaves a row that says so.
func (t Table) Break(ctx context.Context, token Token, name string) error {
	writes := append(release(LeaseRef{name, token}), Write{Kind: Put, Name: name + brokenSuffix, Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}}})
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "break", writes))
}

// GivenBack reports whether the holder of the names under token has released them, if the token was found to be not
// valid before its lease was over: all have a row, under a later token, and none was broken since. An id that is not ""
// may claim its own lock back without any release, so what it holds now proves nothing.
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

// beside returns the lock that a row is kept beside: the row says what was done last under it, or that it was broken.
func beside(key string) (lock string, ok bool) {
	for _, suffix := range []string{doneSuffix, brokenSuffix} {
		if lock, ok = strings.CutSuffix(key, suffix); ok {
			return lock, true
		}
	}
	return "", false
}
