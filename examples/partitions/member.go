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
	// Not with a ctx that ends: the client has to outlive it, for the release.
	return spanner.NewClient(context.Background(), path, spindle.ClientOptions(lease)...)
}

// takePart runs a process of the story, which prints what its parent can't see in the table.
func takePart(ctx context.Context, path, id string) error {
	db, err := connect(path)
	if err != nil {
		return err
	}
	defer db.Close()
	return newConsumer(db, id, func(partition string) { fmt.Println("late", partition) }).run(ctx)
}

// joinIn runs a process that the user has started in another terminal. It shows what it has until Ctrl+C, or until the
// story has ended and dropped the database.
func joinIn(ctx context.Context, path, id string) error {
	db, err := connect(path)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := demokit.NewTimeline()
	s.Print(demokit.Bold, "%s joins the group. Ctrl+C makes it leave, and hand over what it has.", id)
	s.Say("", demokit.Plain, "a new process gets partitions a lease later: %v", lease)
	s.Say("", demokit.Plain, "here you see only those that %s has:", id)
	legend(s, []string{id}, "")
	c := newConsumer(db, id, func(partition string) {
		s.Say("", demokit.Bad, "a commit to partition %s came too late: refused", partition)
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
				s.Say("", demokit.Plain, "%s has left: the others have everything", id)
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
				s.Say("", demokit.Plain, "the story is over")
				return nil
			}
		}
	}
}

// has returns the picture of what this process has. It makes no RPC.
func (c *consumer) has() (p picture) {
	for n := range p {
		p[n] = nobody
		if has, _ := c.group.Has(strconv.Itoa(n)); has {
			p[n] = c.id
		}
	}
	return p
}

// over reports whether the database is gone.
func over(ctx context.Context, db *spanner.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	_, err := processed(ctx, db)
	return err != nil && ctx.Err() != context.Canceled
}
