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

// Two machines schedule a report at 3:00 in Berlin, and one of them runs it. The other could be an hour late.
func ExampleJob_cron() {
	tb := &testcheck.Example{}
	defer tb.End()
	db := spindletest.New(tb)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	report := func(ctx context.Context, run lock.Run) error {
		at, err := time.Parse(time.RFC3339, run.Key())
		fmt.Println("the report of", at.In(berlin).Format("15:04"))
		return err
	}
	for range 2 {
		once := lock.NewOnce(db.Client, db.Table, "report")
		c := cron.New(cron.WithLocation(berlin))
		if _, err := c.AddJob("0 3 * * *", spindlecron.Job(context.Background(), cron.DiscardLogger, once, lock.Cron("0 3 * * *", berlin), report)); err != nil {
			log.Fatal(err)
		}
		c.Entries()[0].Job.Run() // the Cron does, once it has been started, at 3:00
	}
	// Output: the report of 03:00
}
