package spindletest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// SupersedePartition makes another process the holder of a group's partition, even if a member owns the partition. When
// SupersedePartition returns, the member's writes with the partition's token are fenced. The member notices this at its
// next poll, and cancels the context of its work on the partition, with spindle.ErrSuperseded as the cause.
//
// The new holder has the id "another process" and sends no heartbeats. It holds only the partition's lock and does not
// join the group, so the members log a warning. It holds the lock for as long as the member's lease, or until release
// is called. Then a member claims the partition again, and release no longer has any effect.
//
// If SupersedePartition does not succeed within ten seconds, it fails the test.
func (d *Database) SupersedePartition(group, partition string) (release func()) {
	d.tb.Helper()
	return supersedePartition(d.tb, table.Spanner{DB: d.Client, Table: d.Table}, group, partition)
}

func supersedePartition(tb testing.TB, store table.Store, group, partition string) (release func()) {
	tb.Helper()
	fail := func(what string, err error) {
		tb.Helper()
		tb.Fatalf("spindletest: %s partition %q of group %q: %v", what, partition, group, err)
	}
	if err := errors.Join(table.CheckGroup(group), table.CheckPartition(group, partition)); err != nil {
		fail("supersede", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	t := table.Table{Store: store}
	held, err := claimPartition(ctx, t, group, table.PartitionName(group, partition))
	if err != nil {
		fail("supersede", err)
	}
	return func() {
		tb.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := t.Release(ctx, held.Token, held.Name); err != nil && !errors.Is(err, table.ErrSuperseded) {
			fail("release", err)
		}
	}
}

// claimPartition retries until its claim succeeds. A claim can fail because a member has changed the row in the
// meantime, or because the emulator is busy.
func claimPartition(ctx context.Context, t table.Table, group, name string) (table.LeaseRef, error) {
	clock := elect.SystemClock{}
	retry := elect.Backoff{Max: 100 * time.Millisecond}
	for {
		token, err := claimPartitionOnce(ctx, t, group, name)
		if err == nil || ctx.Err() != nil || table.Refused(err) {
			return table.LeaseRef{Name: name, Token: token}, err
		}
		elect.Sleep(ctx, clock, retry.Pause(clock))
	}
}

func claimPartitionOnce(ctx context.Context, t table.Table, group, name string) (table.Token, error) {
	snapshot, err := t.LookAtGroup(ctx, group, table.GroupQuery{WithLeases: []string{name}})
	if err != nil {
		return 0, err
	}
	seen := snapshot.Partitions[name]
	record := table.LeaseRecord{Lease: options.DefaultLease, ID: another}
	if seen.LeaseRecord != nil {
		record.Lease = seen.LeaseRecord.Lease
	}
	token, err := t.Claim(ctx, another, seen.Observation)
	if err != nil {
		return 0, err
	}
	return token, t.Confirm(ctx, token, record, name)
}
