package spindlegocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/adapters/gocron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// Two machines schedule the same job each second, and one of them runs it.
func ExampleTask() {
	tb := &testcheck.Example{}
	defer tb.End()
	db := spindletest.New(tb) // a program uses spanner.NewClient, and a table from ddl.Create

	ran := make(chan time.Time, 10)
	for range 2 {
		once := lock.NewOnce(db.Client, db.Table, "report")
		report := func(ctx context.Context, run lock.Run) error {
			at, err := time.Parse(time.RFC3339, run.Key())
			ran <- at
			return err
		}
		s, err := gocron.NewScheduler()
		if err != nil {
			log.Fatal(err)
		}
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true),
			spindlegocron.Task(once, lock.Every(time.Second), report), gocron.WithName("report"))
		if err != nil {
			log.Fatal(err)
		}
		s.Start()
		defer func() { _ = s.Shutdown() }()
	}
	first, second := <-ran, <-ran
	fmt.Println("for different seconds:", second.After(first))
	// Output: for different seconds: true
}

// The same for existing jobs. gocron asks the locker before it runs one.
func ExampleNewLocker() {
	tb := &testcheck.Example{}
	defer tb.End()
	db := spindletest.New(tb)

	ran := make(chan time.Time, 10)
	for range 2 {
		minutely := spindlegocron.NewLocker(db.Client, db.Table, "billing", lock.Every(time.Minute))
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(minutely))
		if err != nil {
			log.Fatal(err)
		}
		_, err = s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func() { ran <- time.Now() }), gocron.WithName("report"),
			gocron.WithStartAt(gocron.WithStartImmediately())) // not only at the next minute
		if err != nil {
			log.Fatal(err)
		}
		s.Start()
		defer func() { _ = s.Shutdown() }()
	}
	<-ran
	fmt.Println("one machine runs it")
	// Output: one machine runs it
}
