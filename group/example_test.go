package group_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
)

// Every process of the service runs this code. Each partition of the queue is consumed by one of the processes, and its
// checkpoint is written in the commit that the fence guards.
func Example() {
	ctx, quit := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer quit()
	db, err := spindle.Open(ctx, os.Getenv("SPINDLE_DB"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	g := group.New(db, "locktable", "orders", group.Numbered(64), spindle.WithHandover(),
		group.WithWork(func(ctx context.Context, p group.Partition) error {
			for ctx.Err() == nil { // ctx ends the instant the partition is lost or has to move
				next, position, err := receive(ctx, p.Name()) // waits for work
				if err != nil {
					return err // the group logs it, and runs the work again after a pause
				}
				checkpoint := spanner.InsertOrUpdate("checkpoints", []string{"name", "position"}, []any{p.Name(), position})
				if _, err := p.Apply(ctx, append(next, checkpoint)); err != nil {
					return err
				}
			}
			return nil
		}))
	done := make(chan error, 1)
	if err := g.Run(ctx, done); err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil { // all work has returned, and the other members have its partitions
		log.Print(err)
	}
}

// Code without a work function checks whether the process has a partition, and fences its writes.
func ExampleGroup_Held() {
	var g *group.Group // a group that is running
	for _, p := range g.Held() {
		if _, err := p.Apply(context.Background(), mutations(p.Name())); err != nil {
			log.Print(err)
		}
	}
}

// A member measures how much it can do, and sets its weight from that, rounded so that few partitions move.
func ExampleGroup_SetWeight() {
	var g *group.Group // a group that is running
	for range time.Tick(time.Minute) {
		weight := int(10 * throughput() / (1 + lag()))
		if err := g.SetWeight(max(weight, 1)); err != nil {
			log.Print(err)
		}
	}
}

func ExampleMembers() {
	var db *spanner.Client
	view, err := group.Members(context.Background(), db, "locktable", "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range view.Members {
		log.Print(m.ID, " has ", len(m.Partitions), " partitions since ", m.Since.Format(time.RFC3339))
	}
}

func receive(context.Context, string) ([]*spanner.Mutation, int64, error) { return nil, 0, nil }

func throughput() float64 { return 1 }

func lag() float64 { return 0 }

func mutations(string) []*spanner.Mutation { return nil }
