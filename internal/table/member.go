package table

import (
	"context"
	"errors"
	"slices"
	"time"
)

// EvictMembers ends the terms of members whose leases have expired. It releases their slots and deletes their lease
// rows, so that late heartbeats fail. EvictMembers skips members whose lock rows have changed since they were observed,
// because their leases may not have expired after all. It returns the names of the freed slots, and fails with
// ErrChanged if no slot was freed.
func (t Table) EvictMembers(ctx context.Context, dead ...Observation) (freed []string, err error) {
	gone, _, err := t.replace(ctx, "evict", dead, false, func(o Observation) []Write {
		return append(drop(o), release(LeaseRef{o.Name, o.Token})...)
	})
	return namesOf(gone), err
}

// ReleasePartitions frees partitions in one blind commit. If any partition is not held under its token,
// ReleasePartitions fails and frees none.
func (t Table) ReleasePartitions(ctx context.Context, refs ...LeaseRef) error {
	var writes []Write
	for _, h := range refs {
		writes = append(append(writes, requireLease(h.Name, h.Token)), release(h)...)
	}
	return t.Store.Commit(ctx, "release-partitions", writes)
}

// MarkPaused records in the table that the member's program has paused the given partitions. It releases each partition
// whose lock row names a member's term that is over, unless the partition's lease row has a newer format. It then marks
// each released partition that has a lock row: it writes the key of the member's lease row into the writer column.
// MarkPaused returns the names of all partitions that are now marked or have no lock row.
//
// A mark does not prevent a claim, and a claim replaces it. It counts only until the term of the member that wrote it
// is over.
func (t Table) MarkPaused(ctx context.Context, member LeaseRef, over func(LeaseRef) bool, partitions ...string) (marked []string, err error) {
	_, err = t.Store.Transact(ctx, "mark-paused", func(ctx context.Context, r Reader) ([]Write, error) {
		read, err := r.Read(ctx, Keys{Names: partitions})
		if err != nil {
			return nil, err
		}
		var leases []string // of the partitions to release
		for _, row := range read {
			if with, is := MemberOf(row.Writer); row.Heartbeat.IsZero() || !is || !over(with) {
				continue
			}
			leases = append(leases, LeaseKey(row.Name, TokenAt(row.Token)))
		}
		if leases != nil {
			more, err := r.Read(ctx, Keys{Names: leases})
			if err != nil {
				return nil, err
			}
			read = append(read, more...)
		}
		rows := RowsAt(time.Time{}, read)
		var writes []Write
		marked = nil
		for _, name := range partitions {
			row, exists := rows.byName[name]
			if !row.Heartbeat.IsZero() {
				h := LeaseRef{name, TokenAt(row.Token)}
				_, unreadable := rows.Observe(name)
				if !slices.Contains(leases, h.Key()) || errors.Is(unreadable, ErrNewer) {
					continue
				}
				writes = append(writes, release(h)...)
			}
			marked = append(marked, name)
			if exists && row.Writer != member.Key() {
				writes = append(writes, Write{Kind: Update, Name: name, Set: []Cell{{ColWriter, member.Key()}}})
			}
		}
		if writes == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	if errors.Is(err, ErrChanged) {
		err = nil // there was nothing to write
	}
	return marked, err
}

// ReconcilePartitions frees partitions whose rows name the member as their holder, if the rows have not changed since
// they were observed. The member must not be acting on these partitions, and must not have any requests for them in
// flight. ReconcilePartitions fails with ErrChanged if there is nothing to free.
func (t Table) ReconcilePartitions(ctx context.Context, member LeaseRef, seen ...Observation) error {
	_, _, err := t.replace(ctx, "reconcile", seen, false, func(o Observation) (writes []Write) {
		if o.Exists && o.Writer == member.Key() && !o.Heartbeat.IsZero() {
			writes = release(LeaseRef{o.Name, o.Token})
		}
		for _, token := range o.Orphans {
			if o.OrphanLeases[token].With == member.Key() {
				writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
			}
		}
		return writes
	})
	return err
}
