package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/lock"
)

const lockTable = "locktable"

const partitions = 12 // of the group

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// startSpindle starts an emulator. Each measurement has its own, because an emulator slows down with each commit.
func startSpindle(g *ground) (p place, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // enough to pull the emulator's image
	defer cancel()
	e, err := emulator.Start(ctx)
	if err != nil {
		return p, err
	}
	g.onClose(func() { _ = e.Close() })
	dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	p.Addr = e.Addr()
	p.Database, err = e.CreateDatabase(ctx, dialect, ddl.Statement(dialect, lockTable))
	return p, err
}

func (p place) spanner() (*spanner.Client, error) {
	// The Spanner client takes the emulator's address only from the environment.
	if err := os.Setenv("SPANNER_EMULATOR_HOST", p.Addr); err != nil {
		return nil, err
	}
	config := spanner.ClientConfig{DisableNativeMetrics: true}
	return spanner.NewClientWithConfig(context.Background(), p.Database, config, spindle.ClientOptions(lease)...)
}

// A manner returns an option, and a function that releases the option's resources. The option decides whether a process
// learns that a lock is free only from its own polls, or also from notifications.
type manner func() (spindle.LockOption, func(), error)

func alone() (spindle.LockOption, func(), error) { return quiet, func() {}, nil }

func notified() (spindle.LockOption, func(), error) {
	n, err := spindle.ListenNotifications("127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	return spindle.WithNotifier(n), n.Close, nil
}

// electing returns a function that runs an elector with the given options.
func electing(learns manner, opts ...spindle.Option) compete {
	return func(ctx context.Context, p place, name string, say say) error {
		db, err := p.spanner()
		if err != nil {
			return err
		}
		how, done, err := learns()
		if err != nil {
			return err
		}
		defer done()
		lead := spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { say.during(ctx, name) })
		return spindle.New(db, lockTable, name, append(opts, how, lead, spindle.WithLease(lease), quiet)...).RunAndWait(ctx)
	}
}

func join(ctx context.Context, p place, name string, say say) error {
	db, err := p.spanner()
	if err != nil {
		return err
	}
	work := group.WithWork(func(ctx context.Context, p group.Partition) error {
		say.during(ctx, p.Name())
		return nil
	})
	g := group.New(db, lockTable, name, group.Numbered(partitions), work, spindle.WithHandover(), spindle.WithLease(lease), quiet)
	return g.RunAndWait(ctx)
}

// newMutex returns a function that opens a mutex. The mutex's notifier stays open until the process ends.
func newMutex(learns manner) func(place, string) (locker, error) {
	return func(p place, name string) (locker, error) {
		db, err := p.spanner()
		if err != nil {
			return nil, err
		}
		how, _, err := learns()
		if err != nil {
			return nil, err
		}
		return lock.New(db, lockTable, name, how, spindle.WithLease(lease), quiet), nil
	}
}
