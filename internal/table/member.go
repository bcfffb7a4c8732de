package table

import (
	"context"
	"maps"
	"slices"
)

// EvictMembers ends the terms of members whose leases have expired. It releases their lock rows and deletes their lease
// rows, so that late heartbeats fail. A single commit evicts all members whose rows are still as observed. Other
// members are skipped, because their observations no longer prove that their leases expired. EvictMembers returns the
// names of the freed slots, and fails with ErrChanged if there are none.
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

// ClaimPartitions claims partitions for the member with the given lease row. It skips partitions that have changed
// since they were observed, and fails with ErrChanged if all of them have. As with any claim, the member holds nothing
// until it has confirmed the claim.
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

// ConfirmPartitions confirms partitions that were claimed under the token. The commit requires the member's lease row,
// so it fails if the member's term has ended. The transaction does not read that row, because heartbeats would then
// wait for the transaction. ConfirmPartitions skips partitions that are no longer bare claims under the token, and
// fails with ErrSuperseded if none remains.
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

// ReleasePartitions frees partitions in one blind commit. If any of them is not held under its token, ReleasePartitions
// fails and frees none.
func (t Table) ReleasePartitions(ctx context.Context, refs ...LeaseRef) error {
	var writes []Write
	for _, h := range refs {
		writes = append(writes, release(h)...)
	}
	return t.Store.Commit(ctx, "release-partitions", writes)
}

// ReconcilePartitions frees partitions whose rows name the member, if those rows are still as observed. The member must
// not be acting on these partitions and must have no request for them in progress. ReconcilePartitions fails with
// ErrChanged if there is nothing to free.
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
