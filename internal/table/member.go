package table

import (
	"context"
	"maps"
	"slices"
)

// EvictMembers ends the terms of members whose leases have run out: it releases their rows and deletes their lease
// rows, so that late heartbeats fail. It is one commit for all members whose rows still are as observed; for the
// others, the proof that their leases ran out is void. It returns the names of the freed slots, and fails with
// ErrChanged if there are none.
func (t Table) EvictMembers(ctx context.Context, dead ...Observation) (freed []string, err error) {
	keys := Keys{}
	for _, o := range dead {
		keys.Names = append(keys.Names, o.Name)
	}
	_, err = t.change(ctx, "evict", keys, func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		freed = nil
		for _, o := range dead {
			if unchanged(o, rows) {
				writes = append(append(writes, drop(o)...), Write{Kind: Update, Name: o.Name, Set: released})
				freed = append(freed, o.Name)
			}
		}
		if freed == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	return freed, changed(err)
}

// ClaimPartitions claims partitions for the member with that lease row, if they still are as observed. It leaves the
// others out; if none remains, it fails with ErrChanged. Like any claim, it gives nothing before it is confirmed.
func (t Table) ClaimPartitions(ctx context.Context, member LeaseRef, seen ...Observation) (token Token, names []string, err error) {
	at, err := t.change(ctx, "claim-partitions", claimed(seen), func(rows map[string]Row) ([]Write, error) {
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

// ConfirmPartitions confirms what was claimed under the token, if the member is still there: the commit needs its lease
// row. The row is not read, or heartbeats would wait for the transaction. Partitions that are not bare claims of the
// token any more are left out; if none remains, it fails with ErrSuperseded.
func (t Table) ConfirmPartitions(ctx context.Context, member LeaseRef, p LeaseRecord, token Token, names ...string) (confirmed []string, err error) {
	p.With = member.Key()
	_, err = t.change(ctx, "confirm-partitions", Keys{Names: names}, func(rows map[string]Row) ([]Write, error) {
		writes := []Write{requireLease(member.Name, member.Token)}
		confirmed = nil
		for _, name := range names {
			if row := rows[name]; bare(row, token) {
				writes, confirmed = append(writes, confirm(row, token, p)...), append(confirmed, name)
			}
		}
		if confirmed == nil {
			return nil, ErrSuperseded
		}
		return writes, nil
	})
	return confirmed, err
}

// ReleasePartitions frees partitions, in one blind commit. It fails, and frees none, if one of them is not held under its
// token.
func (t Table) ReleasePartitions(ctx context.Context, refs ...LeaseRef) error {
	var writes []Write
	for _, h := range refs {
		writes = append(writes, release(h)...)
	}
	return t.Store.Commit(ctx, "release-partitions", writes)
}

// ReconcilePartitions frees partitions whose rows name a member that does not act on them and has no request for them
// under way, if they and their lease rows still are as observed. It fails with ErrChanged if none is.
func (t Table) ReconcilePartitions(ctx context.Context, member LeaseRef, seen ...Observation) error {
	_, err := t.change(ctx, "reconcile", claimed(seen), func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, o := range seen {
			if unchanged(o, rows) {
				writes = append(writes, reconcile(member, o)...)
			}
		}
		if writes == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	return changed(err)
}

func reconcile(member LeaseRef, o Observation) (writes []Write) {
	if o.Exists && o.Writer == member.Key() && !o.Heartbeat.IsZero() {
		writes = append(writes, Write{Kind: Update, Name: o.Name, Set: released}, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})
	}
	for _, token := range slices.Sorted(maps.Keys(o.OrphanLeases)) {
		if o.OrphanLeases[token].With == member.Key() {
			writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
		}
	}
	return writes
}
