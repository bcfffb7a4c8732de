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

// Supersede makes another process the holder of the lock, as if the present holder, if there is one, had been silent
// for a lease. When it returns, the earlier holder's writes are fenced, and that holder's next heartbeat fails with
// spindle.ErrSuperseded. Supersede also works for mutexes, by their names, and for the slots of a semaphore, which are
// named name/slot/0000 and so on. For a partition of a group, use [Database.SupersedePartition]. The members of a group
// can't be superseded.
//
// The new holder has the id "another process" and sends no heartbeats. It keeps the lock for as long as the earlier
// holder's lease, or for the default lease if there was no holder. Call release to give the lock back earlier. Once
// that time has passed, release does nothing.
//
// Supersede blocks for up to ten seconds, and fails the test if it does not succeed.
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
		if elect.Lasting(err) || ctx.Err() != nil {
			return nil, err
		}
		elect.Sleep(ctx, c.Clock, retry.Pause(c.Clock)) // the holder's heartbeat came first, or the emulator is busy
	}
}
