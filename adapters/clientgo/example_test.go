package clientgo_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/clientgo"
)

// A controller that runs in several clusters and is active in only one of them.
func Example() {
	const lease = 5 * time.Second
	ctx, quit := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer quit()
	// The client has to outlive ctx, because it is needed to release the lock.
	db, err := spanner.NewClient(context.Background(), "projects/P/instances/I/databases/D", spindle.ClientOptions(lease)...)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	lock, err := clientgo.New(db, "locktable", "my-controller", spindle.WithLease(lease))
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			for ctx.Err() == nil { // ctx ends when the lock is lost
				// Do the work here. Its writes commit only while this process leads:
				_, err := lock.Spindle().Apply(ctx, clientgo.TokenOf(ctx), nil)
				log.Print(err)
				time.Sleep(time.Second)
			}
		},
		OnStoppedLeading: func() {},
		OnNewLeader:      func(id string) { log.Print("the leader is ", id) },
	}))
	if err != nil {
		log.Fatal(err)
	}
	elector.Run(ctx) // until ctx ends, or the lock is lost
	if err := lock.Stop(context.Background()); err != nil {
		log.Print(err)
	}
}
