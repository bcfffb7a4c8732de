// Quickstart is the program in the README. If several processes run it, at most one of them leads at any time.
//
//	spindle init --db projects/P/instances/I/databases/D
//	SPINDLE_DB=projects/P/instances/I/databases/D go run ./examples/quickstart
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	db, err := spindle.Open(ctx, os.Getenv("SPINDLE_DB"))
	if err == nil {
		err = ddl.Verify(ctx, db, "locktable") // otherwise, the lock would wait for a missing table
	}
	if err != nil {
		log.Fatal(err)
	}
	lock := spindle.New(db, "locktable", "mylock", spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
		log.Print("leading under token ", term.Token()) // term.Apply(ctx, …) writes only while this process leads
		<-ctx.Done()                                    // ends the instant the lock is lost; returning earlier gives up the lock
	}))
	log.Print("stopped: ", lock.RunAndWait(ctx)) // the work has returned, and the lock is released
}
