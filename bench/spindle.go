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

// partitions is the number of partitions of the group.
const partitions = 12

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// startSpindle starts an emulator, because an emulator slows down with each commit.
func startSpindle(g *ground, n int) ([]place, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // enough to pull the emulator's image
	defer cancel()
	e, err := emulator.Start(ctx)
	if err != nil {
		return nil, err
	}
	g.onClose(func() { _ = e.Close() })
	dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	path, err := e.CreateDatabase(ctx, dialect, ddl.Statement(dialect, lockTable))
	if err != nil {
		return nil, err
	}
	places := make([]place, n)
	for i := range places {
		places[i].Database = path
		if places[i].Addr, err = g.via(i, e.Addr()); err != nil {
			return nil, err
		}
	}
	return places, nil
}

func (p place) spanner() (*spanner.Client, error) {
	// The Spanner client takes the emulator's address only from the environment.
	if err := os.Setenv("SPANNER_EMULATOR_HOST", p.Addr); err != nil {
		return nil, err
	}
	config := spanner.ClientConfig{DisableNativeMetrics: true}
	return spanner.NewClientWithConfig(context.Background(), p.Database, config, spindle.ClientOptions(lease)...)
}

func elect(ctx context.Context, p place, name string, say say) error {
	return runElector(ctx, p, name, say)
}

func electWithHandover(ctx context.Context, p place, name string, say say) error {
	return runElector(ctx, p, name, say, spindle.WithHandover())
}

func runElector(ctx context.Context, p place, name string, say say, opts ...spindle.Option) error {
	db, err := p.spanner()
	if err != nil {
		return err
	}
	lead := spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
		say(held, name)
		<-ctx.Done()
		say(left, name)
	})
	return spindle.New(db, lockTable, name, append(opts, lead, spindle.WithLease(lease), quiet)...).RunAndWait(ctx)
}

func join(ctx context.Context, p place, name string, say say) error {
	db, err := p.spanner()
	if err != nil {
		return err
	}
	work := group.WithWork(func(ctx context.Context, p group.Partition) error {
		say(held, p.Name())
		<-ctx.Done()
		say(left, p.Name())
		return nil
	})
	g := group.New(db, lockTable, name, group.Numbered(partitions), work, spindle.WithHandover(), spindle.WithLease(lease), quiet)
	return g.RunAndWait(ctx)
}

func spindleMutexes(p place) (func(name string) (locker, error), error) {
	db, err := p.spanner()
	return func(name string) (locker, error) {
		return lock.New(db, lockTable, name, spindle.WithLease(lease), quiet), nil
	}, err
}

func holdMutex(ctx context.Context, p place, name string, say say) error {
	mutexes, err := spindleMutexes(p)
	if err != nil {
		return err
	}
	return hold(ctx, mutexes, name, say)
}

// hold holds a mutex until ctx ends.
func hold(ctx context.Context, mutexes func(string) (locker, error), name string, say say) error {
	m, err := mutexes(name)
	if err != nil {
		return err
	}
	if err := m.Lock(ctx); err != nil {
		return err
	}
	say(held, name)
	<-ctx.Done()
	say(left, name)
	return m.Unlock(context.Background())
}
