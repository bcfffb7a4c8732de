package spindlecron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle/adapters/cron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// Two machines schedule the same job each second, and one of them runs it.
func ExampleJob() {
	tb := &testcheck.Example{}
	defer tb.End()
	db := spindletest.New(tb) // a program uses spanner.NewClient, and a table from ddl.Create

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan time.Time, 10)
	for range 2 {
		once := lock.NewOnce(db.Client, db.Table, "report")
		report := func(ctx context.Context, run lock.Run) error {
			at, err := time.Parse(time.RFC3339, run.Key())
			ran <- at
			return err
		}
		c := cron.New(cron.WithSeconds())
		if _, err := c.AddJob("* * * * * *", spindlecron.Job(ctx, cron.DefaultLogger, once, lock.Every(time.Second), report)); err != nil {
			log.Fatal(err)
		}
		c.Start()
		defer func() { cancel(); <-c.Stop().Done() }()
	}
	first, second := <-ran, <-ran
	fmt.Println("for different seconds:", second.After(first))
	// Output: for different seconds: true
}
