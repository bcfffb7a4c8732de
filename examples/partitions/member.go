//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

func connect(path string) (*spanner.Client, error) {
	// The client must outlive the caller's ctx, because it is needed to release the locks.
	return spanner.NewClient(context.Background(), path, spindle.ClientOptions(lease)...)
}

// takePart runs a process that the demonstration started. It reports late commits to its parent, which can't see them
// in the table.
func takePart(ctx context.Context, path, id string) error {
	db, err := connect(path)
	if err != nil {
		return err
	}
	defer db.Close()
	return newConsumer(db, id, func(partition string) { fmt.Println("late", partition) }).run(ctx)
}

// joinIn runs a process that the user started in another terminal, and shows which partitions the process owns. It
// returns when the user presses Ctrl+C, or when the demonstration ends and drops the database.
func joinIn(ctx context.Context, path, id string) error {
	db, err := connect(path)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := demokit.NewTimeline()
	s.Print(demokit.Bold, "%s is joining the group. Press Ctrl+C to leave and hand over its partitions.", id)
	s.Say("", demokit.Plain, "a new process gets its first partitions after one lease (%v)", lease)
	s.Say("", demokit.Plain, "only the partitions of %s are shown here:", id)
	legend(s, []string{id}, "")
	c := newConsumer(db, id, func(partition string) {
		s.Say("", demokit.Bad, "a commit to partition %s came too late and was refused", partition)
	})
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	has, asked, tick := picture{}, time.Now(), time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case err := <-done:
			if err == nil {
				s.Say("", demokit.Plain, "%s has left, and the other processes have taken over its partitions", id)
			}
			return err
		}
		if now := c.has(); now != has {
			has = now
			draw(s, now, []string{id})
		}
		if ctx.Err() == nil && time.Since(asked) > time.Second {
			asked = time.Now()
			if over(ctx, db) {
				s.Say("", demokit.Plain, "the demonstration has ended")
				return nil
			}
		}
	}
}

// has returns a picture that shows only this process's partitions. It makes no RPC.
func (c *consumer) has() (p picture) {
	for n := range p {
		p[n] = nobody
		if has, _ := c.group.Has(strconv.Itoa(n)); has {
			p[n] = c.id
		}
	}
	return p
}

// over reports whether the demonstration has ended. The demonstration drops its database at the end, so over returns
// true if the database can't be read.
func over(ctx context.Context, db *spanner.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	_, err := processed(ctx, db)
	return err != nil && ctx.Err() != context.Canceled
}
