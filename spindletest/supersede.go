package spindletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// another is the id of the superseding process.
const another = "another process"

// Supersede makes another process the holder of the lock. If the lock is held, the holder is treated as if it had sent
// no heartbeats for a whole lease. When Supersede returns, the previous holder's fenced writes fail, and its next
// heartbeat fails with spindle.ErrSuperseded.
//
// The name can also be the name of a mutex, or of a slot of a semaphore, such as name/slot/0000. For a partition of a
// group, use [Database.SupersedePartition]. The members of a group can't be superseded.
//
// The new holder has the id "another process" and sends no heartbeats. It has the same lease as the previous holder, or
// the default lease if there was no holder. To release the lock before the lease expires, call release. After the lease
// has expired, release does nothing.
//
// Supersede fails the test if it does not succeed within a minute.
func (d *Database) Supersede(name string) (release func()) {
	d.tb.Helper()
	return supersede(d.tb, table.Spanner{DB: d.Client, Table: d.Table}, name)
}

// SupersedePartition makes another process the holder of a group's partition, even if a member owns the partition. When
// SupersedePartition returns, the member's fenced writes under the partition's token fail. The member notices the loss
// when one of these writes fails, or at its next poll. It then cancels the context of its work on the partition, with
// spindle.ErrSuperseded as the cause.
//
// The new holder has the id "another process" and sends no heartbeats. It has the same lease as the member, or the
// default lease if no member owned the partition. Members log a warning, because the new holder has not joined the
// group. When the lease has expired or release has been called, a member can claim the partition again, and release no
// longer has any effect.
//
// SupersedePartition fails the test if it does not succeed within a minute.
func (d *Database) SupersedePartition(group, partition string) (release func()) {
	d.tb.Helper()
	return supersedePartition(d.tb, table.Spanner{DB: d.Client, Table: d.Table}, group, partition)
}

func supersede(tb testing.TB, store table.Store, name string) (release func()) {
	tb.Helper()
	return usurper{tb, table.Table{Store: store}, name}.seize(table.CheckName(name), func(ctx context.Context, t table.Table) (table.Observation, error) {
		seen, err := t.LookAtLeases(ctx, time.Now(), name)
		if err != nil {
			return table.Observation{}, err
		}
		if r := seen[0].LeaseRecord; r != nil && r.ListDigest != "" {
			return seen[0], fmt.Errorf("lock %q %w", name, table.ErrGroup)
		}
		return seen[0], nil
	})
}

func supersedePartition(tb testing.TB, store table.Store, group, partition string) (release func()) {
	tb.Helper()
	name := table.PartitionName(group, partition)
	bad := errors.Join(table.CheckGroup(group), table.CheckPartition(group, partition))
	return usurper{tb, table.Table{Store: store}, name}.seize(bad, func(ctx context.Context, t table.Table) (table.Observation, error) {
		snapshot, err := t.LookAtGroup(ctx, group, table.GroupQuery{WithLeases: []string{name}})
		return snapshot.Partitions[name], cmp.Or(err, snapshot.Unreadable[name])
	})
}

// usurper is another process, which takes a lock from its holder.
type usurper struct {
	tb    testing.TB
	table table.Table
	name  string
}

// seize claims the lock whether or not it is free. If bad is not nil, seize fails the test with that error.
func (u usurper) seize(bad error, look func(context.Context, table.Table) (table.Observation, error)) (release func()) {
	u.tb.Helper()
	if bad != nil {
		u.tb.Fatalf("spindletest: supersede: %v", bad)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	clock, retry := elect.SystemClock{}, elect.Backoff{Max: 100 * time.Millisecond}
	for {
		seen, err := look(ctx, u.table)
		if err == nil {
			if release, err = u.claim(ctx, seen); err == nil {
				return release
			}
		}
		if !table.Refused(err) {
			elect.Sleep(ctx, clock, retry.Pause(clock)) // the holder's heartbeat came first, or the emulator is busy
		}
		if table.Refused(err) || ctx.Err() != nil {
			u.tb.Fatalf("spindletest: supersede: lock %q: %v", u.name, err)
		}
	}
}

func (u usurper) claim(ctx context.Context, seen table.Observation) (release func(), err error) {
	record := table.LeaseRecord{Lease: options.DefaultLease, ID: another}
	if seen.LeaseRecord != nil {
		record.Lease = seen.LeaseRecord.Lease
	}
	token, err := u.table.Claim(ctx, another, seen)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	return func() {
		u.tb.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if time.Since(sent) > record.Lease {
			return
		}
		if err := u.table.Release(ctx, token, u.name); err != nil && !errors.Is(err, table.ErrSuperseded) {
			u.tb.Errorf("spindletest: supersede: lock %q: %v", u.name, err)
		}
	}, u.table.Confirm(ctx, token, record, u.name)
}
