package table

import "context"

// An operator can take a lock away from its holder with Break. Break also writes a row next to the lock row, such as
// "nightly!broken". The row's token is the token that the holder has lost, and its heartbeat is the time of the break.
//
// This row helps a holder whose release is refused to tell whether an earlier attempt of the same release was applied.
// Until the holder's lease expires, a candidate can claim the lock only after the holder's own release or after a
// break. So if the lock has a later token and there was no break, the earlier attempt was applied.

const brokenSuffix = "!broken"

// BrokenRow returns the key of the row that Break writes.
func BrokenRow(name string) string { return name + brokenSuffix }

// Break releases a lock on behalf of an operator rather than the holder. It also writes the lock's "!broken" row.
func (t Table) Break(ctx context.Context, token Token, name string) error {
	writes := append(release(LeaseRef{name, token}), Write{Kind: Put, Name: BrokenRow(name), Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}}})
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "break", writes))
}

// GivenBack reports whether the caller itself has released the named locks, which it held under token. The caller must
// have found the token invalid before its lease expired. GivenBack returns true if every lock row exists with a later
// token, and no lock was broken under this token or a later one.
//
// If id is not empty, GivenBack returns false if the candidate with this id holds one of the locks now. Such a
// candidate can reclaim its own lock without releasing it.
func (t Table) GivenBack(ctx context.Context, token Token, id string, names ...string) (bool, error) {
	var keys Keys
	for _, name := range names {
		keys.Names = append(keys.Names, name, BrokenRow(name))
	}
	rows, at, err := t.Store.Read(ctx, "released", Strong, keys)
	if err != nil {
		return false, err
	}
	all := RowsAt(at, rows)
	for _, name := range names {
		row, exists := all.byName[name]
		reclaimed := id != "" && row.Writer == id && !row.Heartbeat.IsZero()
		if !exists || reclaimed || TokenAt(row.Token) <= token || TokenAt(all.byName[BrokenRow(name)].Token) >= token {
			return false, nil
		}
	}
	return true, nil
}
