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

	// idle is how long work waits for items, or after an error.
	idle = pace
)

// consumer is one process that consumes the queue together with the others of its group.
type consumer struct {
	db    *spanner.Client
	id    string
	group *group.Group
	late  func(partition string) // called with each commit that the fence has refused
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

// run takes part until ctx ends, and then gives everything to the others.
func (c *consumer) run(ctx context.Context) error {
	done := make(chan error, 1)
	if err := c.group.Run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// work consumes one partition, as long as this process has it. The next process continues after the checkpoint.
func (c *consumer) work(ctx context.Context, p group.Partition) error {
	for ctx.Err() == nil {
		items, err := next(ctx, c.db, p.Name())
		if err == nil && len(items) > 0 {
			err = c.commit(p, process(ctx, items))
		}
		if errors.Is(err, spindle.ErrFenced) {
			c.late(p.Name()) // another has the partition by now, and processes them again
		}
		if err != nil || len(items) == 0 {
			pause(ctx, idle) // what was not committed is read again
		}
	}
	return nil
}

// commit writes the results and the checkpoint, or, once another process has the partition, nothing. It makes one commit:
// results without the checkpoint would be written twice, and a checkpoint without the results would lose items. It does not
// end with the work's ctx, because processed items are worth keeping. It is short, because the next process waits for it.
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
