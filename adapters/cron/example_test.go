package spindlecron_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle/adapters/cron"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// Two machines have the same job each second, and one of them runs it.
func ExampleJob() {
	tb := &example{}
	defer tb.end()
	db := spindletest.New(tb) // in a program: spanner.NewClient, and the table by ddl.Create

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

// example stands for a test in an example, which has none.
type example struct {
	testing.TB
	cleanups []func()
}

func (*example) Helper()                  {}
func (*example) Context() context.Context { return context.Background() }
func (*example) Fatal(args ...any)        { log.Fatal(args...) }
func (*example) Error(args ...any)        { log.Print(args...) }
func (e *example) Cleanup(f func())       { e.cleanups = append(e.cleanups, f) }

func (e *example) end() {
	for i := range e.cleanups {
		e.cleanups[len(e.cleanups)-1-i]()
	}
}
