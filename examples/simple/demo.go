package main

import (
	"context"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	demoLease = 2 * time.Second
	demoName  = "demo"
)

// demonstrate shows three processes that compete for a lock. This process only watches the lock.
func demonstrate(ctx context.Context) error {
	e := demokit.NewElection(demoLease, "leads", true)
	e.Print(demokit.Bold, "Three processes compete for one lock. At most one of them leads at any time.")
	e.Print(demokit.Plain, "After a crash, no process can lead until the leader's %v lease expires.\n", demoLease)
	database, err := e.Open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	db, err := spindle.Open(ctx, database.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	defer e.End()
	err = e.Begin(ctx, func(name string) []string {
		return []string{"-db", database.Path, "-table", demokit.Table, "-name", demoName, "-lease", demoLease.String(), "-id", name}
	})
	if err != nil {
		return err
	}
	return play(ctx, e, spindle.New(db, demokit.Table, demoName))
}

func play(ctx context.Context, e *demokit.Election, lock *spindle.Lock) error {
	var last time.Time // the last heartbeat of the process that is killed, by Spanner's clock
	e.Say("", demokit.Bad, "kill -9 %d: no process leads until the dead leader's lease expires", e.Holder().Pid())
	crash, err := e.Next(ctx, func(c *demokit.Child) error {
		if err := c.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		leader, err := lock.Leader(ctx)
		last = leader.Heartbeat
		return err
	})
	if err != nil {
		return err
	}
	silence := e.Token().Time().Sub(last)
	pause, err := e.Pause(ctx, "it can't send heartbeats, so its lease expires")
	if err != nil {
		return err
	}
	e.Say("", demokit.Bad, "kill -TERM %d: it finishes its work, and releases the lock", e.Holder().Pid())
	stop, err := e.Next(ctx, func(c *demokit.Child) error { return c.Signal(syscall.SIGTERM) })
	if err != nil {
		return err
	}
	if err := e.GoHome(ctx); err != nil {
		return err
	}
	e.Print(demokit.Plain, "")
	e.Print(demokit.Bold, "Crash   replaced after %s, %.2f leases after its last heartbeat",
		demokit.InLeases(crash, demoLease), silence.Seconds()/demoLease.Seconds())
	e.Print(demokit.Bold, "Pause   replaced after %s; its late write was rejected", demokit.InLeases(pause, demoLease))
	e.Print(demokit.Bold, "Stop    replaced after %s; a released lock is free at once", demokit.InLeases(stop, demoLease))
	e.Tokens()
	return nil
}
