//go:build unix

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	groupName  = "queue"
	partitions = 16
	lease      = 2 * time.Second

	// idle is how long work pauses if there are no items, or after an error.
	idle = pace
)

// consumer is one process of the group that consumes the queue.
type consumer struct {
	db    *spanner.Client
	id    string
	group *group.Group
	late  func(partition string) // called with the partition of each commit that the fence refused
}

func newConsumer(db *spanner.Client, id string, late func(partition string)) *consumer {
	c := &consumer{db: db, id: id, late: late}
	c.group = group.New(db, demokit.Table, groupName, group.Numbered(partitions),
		group.WithWork(c.work),
		spindle.WithID(id),
		spindle.WithLease(lease),
		spindle.WithHandover(),
		spindle.WithLogger(slog.New(slog.DiscardHandler)))
	return c
}

// run consumes partitions until ctx ends, and then hands them over to the other processes.
func (c *consumer) run(ctx context.Context) error {
	done := make(chan error, 1)
	if err := c.group.Run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// work consumes one partition for as long as this process has it. The next process continues from the checkpoint.
func (c *consumer) work(ctx context.Context, p group.Partition) error {
	for ctx.Err() == nil {
		items, err := next(ctx, c.db, p.Name())
		if err == nil && len(items) > 0 {
			err = c.commit(p, process(ctx, items))
		}
		if errors.Is(err, spindle.ErrFenced) {
			c.late(p.Name()) // another process has the partition now, and processes these items again
		}
		if err != nil || len(items) == 0 {
			pause(ctx, idle) // uncommitted items are read again
		}
	}
	return nil
}

// commit writes the results and the checkpoint in one commit, because results without the checkpoint would be written
// twice, and a checkpoint without its results would lose items. If another process has the partition by then, commit
// writes nothing. It does not use the work's ctx, because items that are already processed are worth keeping. Its
// timeout is short, because the next process waits for the work to return.
func (c *consumer) commit(p group.Partition, done []item) error {
	ctx, cancel := context.WithTimeout(context.Background(), lease/4)
	defer cancel()
	writes := []*spanner.Mutation{checkpoint(p.Name(), done[len(done)-1])}
	for _, i := range done {
		writes = append(writes, result(p.Name(), i, c.id, p.Token()))
	}
	_, err := p.Apply(ctx, writes)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
