package table

import (
	"context"
	"maps"
	"slices"
)

// Bury ends the term of a member whose lease has run out, for everybody who looks: its row is released, and its lease
// row is gone, so that its late heartbeats fail. It fails with ErrChanged if the row is not what was observed: the
// proof that the lease ran out is then void.
func (t Table) Bury(ctx context.Context, o Observation) error {
	_, err := t.change(ctx, "bury", Keys{Names: []string{o.Name}}, func(rows map[string]Row) ([]Write, error) {
		if !unchanged(o, rows) {
			return nil, ErrChanged
		}
		return append(drop(o), Write{Kind: Update, Name: o.Name, Set: released}), nil
	})
	return changed(err)
}

// Take claims partitions for the member with that lease row: those that still are what was observed. The others are
// left out; if all are, it fails with ErrChanged. As any claim, it gives nothing before it is confirmed.
func (t Table) Take(ctx context.Context, member Hold, seen ...Observation) (token Token, names []string, err error) {
	at, err := t.change(ctx, "take", claimed(seen), func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		names = nil
		for _, o := range seen {
			if w, err := claim(member.Key(), o, rows); err == nil {
				writes, names = append(writes, w...), append(names, o.Name)
			}
		}
		if names == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	if err == nil && at.After(seen[0].At.Add(recent)) {
		err = ErrChanged
	}
	return TokenAt(at), names, changed(err)
}

// Keep confirms what was taken under the token, if the member is still there: its lease row is among what the
// commit needs. It is not read, or heartbeats would wait for the transaction. Partitions that are not bare claims of the
// token any more are left out; if all are, it fails with ErrSuperseded.
func (t Table) Keep(ctx context.Context, member Hold, p Promise, token Token, names ...string) (kept []string, err error) {
	p.With = member.Key()
	_, err = t.change(ctx, "keep", Keys{Names: names}, func(rows map[string]Row) ([]Write, error) {
		writes := []Write{good(member.Name, member.Token)}
		kept = nil
		for _, name := range names {
			if row := rows[name]; bare(row, token) {
				writes, kept = append(writes, confirm(row, token, p)...), append(kept, name)
			}
		}
		if kept == nil {
			return nil, ErrSuperseded
		}
		return writes, nil
	})
	return kept, err
}

// Give frees partitions, in one blind commit. It fails, and frees none, if one of them is not held under its token.
func (t Table) Give(ctx context.Context, holds ...Hold) error {
	var writes []Write
	for _, h := range holds {
		writes = append(writes, release(h)...)
	}
	return t.Store.Commit(ctx, "give", writes)
}

// Settle frees partitions that are with a member which does not act on them, nor has anything under way for
// them: those that still are what was observed in a survey. It fails with ErrChanged if none is.
func (t Table) Settle(ctx context.Context, member Hold, seen ...Observation) error {
	_, err := t.change(ctx, "settle", claimed(seen), func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, o := range seen {
			if unchanged(o, rows) {
				writes = append(writes, settle(member, o)...)
			}
		}
		if writes == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	return changed(err)
}

func settle(member Hold, o Observation) (writes []Write) {
	if o.Exists && o.Writer == member.Key() && !o.Heartbeat.IsZero() {
		writes = append(writes, Write{Kind: Update, Name: o.Name, Set: released}, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})
	}
	for _, token := range slices.Sorted(maps.Keys(o.Strays)) {
		if o.Strays[token].With == member.Key() {
			writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
		}
	}
	return writes
}
