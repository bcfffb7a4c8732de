package spindletest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// another is the id of the superseding process.
const another = "another process"

// Supersede makes another process the holder of the lock. If the lock is held, the holder is treated as if it had sent
// no heartbeats for a whole lease. When Supersede returns, the previous holder's writes are fenced, and its next
// heartbeat fails with spindle.ErrSuperseded.
//
// The name can also be the name of a mutex, or of a slot of a semaphore, such as name/slot/0000. For a partition of a
// group, use [Database.SupersedePartition]. The members of a group can't be superseded.
//
// The new holder has the id "another process" and sends no heartbeats. Its lease is as long as the previous holder's
// lease, or the default lease if there was no holder. To release the lock before the lease expires, call release. After
// the lease has expired, release does nothing.
//
// If Supersede does not succeed within ten seconds, it fails the test.
func (d *Database) Supersede(name string) (release func()) {
	d.tb.Helper()
	return supersede(d.tb, table.Spanner{DB: d.Client, Table: d.Table}, name)
}

func supersede(tb testing.TB, store table.Store, name string) (release func()) {
	tb.Helper()
	if err := table.CheckName(name); err != nil {
		tb.Fatalf("spindletest: supersede: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	term, err := claim(ctx, table.Table{Store: store}, name)
	if err != nil {
		tb.Fatalf("spindletest: supersede: lock %q: %v", name, err)
	}
	return func() {
		tb.Helper()
		if !term.Held() {
			return
		}
		if err := term.Release(context.Background(), spindle.ErrStopped); err != nil && !errors.Is(err, spindle.ErrSuperseded) {
			tb.Errorf("spindletest: supersede: lock %q: %v", name, err)
		}
	}
}

// claim claims the lock whether or not it is free.
func claim(ctx context.Context, t table.Table, name string) (*elect.Term, error) {
	c := options.New([]spindle.Option{spindle.WithID(another)})
	other := c.Candidate(t, name)
	retry := elect.Backoff{Max: 100 * time.Millisecond}
	for {
		seen, err := other.Look(ctx)
		if err == nil {
			if p := seen[0].LeaseRecord; p != nil {
				other.LeaseRecord.Lease = p.Lease
			}
			var term *elect.Term
			if term, err = other.Claim(ctx, seen...); err == nil {
				return term, nil
			}
		}
		if table.Refused(err) || ctx.Err() != nil {
			return nil, err
		}
		elect.Sleep(ctx, c.Clock, retry.Pause(c.Clock)) // the holder's heartbeat came first, or the emulator is busy
	}
}
