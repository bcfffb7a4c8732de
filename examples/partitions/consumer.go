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

	// idle is how long the work on a partition pauses if there are no new items, or after an error.
	idle = pace
)

// consumer is one member of the group that consumes the queue.
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

// work consumes one partition until ctx ends.
func (c *consumer) work(ctx context.Context, p group.Partition) error {
	for ctx.Err() == nil {
		if err := c.consume(ctx, p); errors.Is(err, spindle.ErrFenced) {
			c.late(p.Name()) // the partition's next owner processes these items again
		}
		pause(ctx, idle)
	}
	return nil
}

// consume continues from the checkpoint, until ctx ends or something fails. After an error, the checkpoint tells whether
// the last commit took effect.
func (c *consumer) consume(ctx context.Context, p group.Partition) error {
	position, err := checkpointOf(ctx, c.db, p.Name())
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		items, err := next(ctx, c.db, p.Name(), position)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			pause(ctx, idle)
			continue
		}
		items = process(ctx, items)
		if err := c.commit(p, items); err != nil {
			return err
		}
		position = items[len(items)-1]
	}
	return nil
}

// commit writes the results and the checkpoint atomically, so a crash can neither lose results nor duplicate them. If
// this process no longer owns the partition, commit writes nothing and returns spindle.ErrFenced.
//
// commit does not use the ctx passed to work, so the results of items that were processed before ctx ended are still
// saved. The timeout is short, because work must return before the partition can be handed over.
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
