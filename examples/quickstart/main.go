// Quickstart is the program of the README: one process at a time leads, and says so once a second.
//
//	SPINDLE_DB=projects/P/instances/I/databases/D go run ./examples/quickstart
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
)

func main() {
	ctx, quit := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer quit()
	const lease = 5 * time.Second
	database := os.Getenv("SPINDLE_DB") // projects/P/instances/I/databases/D

	if err := ddl.Create(ctx, database, "locktable"); err != nil { // changes nothing if the table exists
		log.Fatal(err)
	}
	// Not with ctx: the client has to outlive it, for the release.
	db, err := spanner.NewClient(context.Background(), database, spindle.ClientOptions(lease)...)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var lock *spindle.Lock // first, so that the function can use it
	lock = spindle.New(db, "locktable", "mylock", spindle.WithLease(lease),
		spindle.WithLeader(func(ctx context.Context, token spindle.Token) {
			for ctx.Err() == nil { // it ends the instant the lock is lost
				// The work. Its writes land only while this process leads:
				if _, err := lock.Apply(ctx, token, nil); err != nil {
					log.Print(err)
				}
				log.Print("leading under token ", token)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		}))
	done := make(chan error, 1)
	if err := lock.Run(ctx, done); err != nil { // returns at once: the loop runs until ctx ends
		log.Fatal(err)
	}
	if err := <-done; err != nil { // the work has returned, and the lock is released
		log.Print(err)
	}
}
