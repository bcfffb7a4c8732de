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

// another is the id of the process that supersedes.
const another = "another process"

// Supersede makes another process the holder of the lock, whoever has it, as if that had been silent for a lease, and
// returns when this is so. From then on, what the earlier holder writes is fenced. It learns of it by its next
// heartbeat: spindle.ErrSuperseded. Mutexes are locks by their names, and the slots of a semaphore are
// name/slot/0000 and so on. Partitions of a group have [Database.SupersedePartition]; its members can't be superseded.
//
// The other is called "another process", and is not heard from again: it has the lock for the lease that the earlier
// holder had, or else for the default one. Release gives it back before that, and does nothing later.
//
// It blocks for as long as that takes, up to ten seconds, and fails the test if it could not be done.
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

// claim does not ask whether the lock is free.
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
		elect.Sleep(ctx, c.Clock, retry.Pause(c.Clock)) // the holder was first, or the emulator busy
	}
}
