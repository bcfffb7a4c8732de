// Example is one process of a controller that runs in several clusters and is active in one of them. Start it twice, and
// then stop the leader.
//
//	SPINDLE_DB=projects/P/instances/I/databases/D go run ./example
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/clientgo"
	"github.com/spindle-lock/spindle/ddl"
)

func main() {
	ctx, quit := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer quit()
	if err := run(ctx, os.Getenv("SPINDLE_DB")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database string) error {
	const lease = 5 * time.Second
	if err := ddl.Create(ctx, database, "locktable"); err != nil { // changes nothing if the table exists
		return err
	}
	// The client has to outlive ctx, because it is needed to release the lock.
	db, err := spanner.NewClient(context.Background(), database, spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	defer db.Close()

	lock, err := clientgo.New(db, "locktable", "my-controller", spindle.WithLease(lease))
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			token := clientgo.TokenOf(ctx)
			log.Print("leading under token ", token)
			for ctx.Err() == nil { // ctx ends when the lock is lost
				// Do the work here. Its writes commit only while this process leads:
				if _, err := lock.Spindle().Apply(ctx, token, nil); err != nil {
					log.Print(err)
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		},
		OnStoppedLeading: func() { log.Print("not leading") },
		OnNewLeader:      func(id string) { log.Print("the leader is ", id) },
	}))
	if err != nil {
		return err
	}
	elector.Run(ctx) // until ctx ends, or the lock is lost
	return lock.Stop(context.Background())
}
