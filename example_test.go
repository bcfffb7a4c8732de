package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/lock"
)

func Example() {
	ctx, quit := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer quit()
	const database = "projects/my-project/instances/my-instance/databases/my-db"
	if err := ddl.Create(ctx, database, "locktable"); err != nil {
		log.Fatal(err)
	}
	const lease = 5 * time.Second
	db, err := spindle.Open(ctx, database, spindle.ClientOptions(lease)...)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	lock := spindle.New(db, "locktable", "mylock", spindle.WithLease(lease))
	done := make(chan error, 1)
	if err := lock.Run(ctx, done); err != nil {
		log.Fatal(err)
	}
	for range time.Tick(time.Second) {
		if locked, token := lock.HasLock(); locked {
			fmt.Println("leading under token", token)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := <-done; err != nil {
		log.Print(err)
	}
}

func ExampleWithLeader() {
	var ctx context.Context
	var db *spanner.Client

	lock := spindle.New(db, "locktable", "scheduler", spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
		for {
			select {
			case <-ctx.Done(): // the lock was lost, or Run is stopping: see context.Cause(ctx)
				return
			case <-time.After(time.Minute):
				if _, err := term.Apply(ctx, dueJobs()); err != nil {
					log.Print(err)
				}
			}
		}
	}))
	if err := lock.RunAndWait(ctx); err != nil {
		log.Print(err)
	}
}

func ExampleListenNotifications() {
	var ctx context.Context
	var db *spanner.Client

	var opts []lock.Option
	n, err := spindle.ListenNotifications(os.Getenv("POD_IP") + ":7700") // an address that the other processes can reach
	if err != nil {
		log.Print(err) // the lock works without it
	} else {
		defer n.Close()
		opts = append(opts, spindle.WithNotifier(n))
	}
	err = lock.Do(ctx, lock.New(db, "locktable", "report", opts...), func(context.Context) error {
		return nil // the work
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleLock_RunAndWait() {
	var lock *spindle.Lock
	var server *http.Server

	group, ctx := errgroup.WithContext(context.Background())
	group.Go(func() error { return lock.RunAndWait(ctx) })
	group.Go(server.ListenAndServe)
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) }) // if either of the two ends, so does the other
	log.Print(group.Wait())
}

func ExampleApply() {
	var ctx context.Context
	var term spindle.Term      // a leader's term
	var accounts *lock.Mutex   // a locked mutex
	var part group.Partition   // a partition that this process works on
	var ms []*spanner.Mutation // commit only while all three are held

	if _, err := spindle.Apply(ctx, []spindle.Holding{term, accounts, part}, ms); errors.Is(err, spindle.ErrFenced) {
		log.Print("not written: ", err)
	}
}

func ExampleLock_Health() {
	var lock *spindle.Lock

	if err := lock.Health(); err != nil {
		log.Print(err) // what is wrong, and since when
	}
}

func ExampleProbe() {
	var lock *spindle.Lock

	http.Handle("GET /livez", spindle.Probe(lock.Live))     // Kubernetes starts the container again if that fails
	http.Handle("GET /readyz", spindle.Probe(lock.Leading)) // and leads requests to the pod that leads

	// The methods have the signature of controller-runtime's healthz.Checker: mgr.AddHealthzCheck("lock", lock.Live).
	type Checker func(*http.Request) error
	var _ = []Checker{lock.Live, lock.Leading}
}

func ExampleLock_Apply() {
	var ctx context.Context
	var lock *spindle.Lock

	locked, token := lock.HasLock()
	if !locked {
		return
	}
	_, err := lock.Apply(ctx, token, []*spanner.Mutation{
		spanner.Update("accounts", []string{"id", "balance"}, []any{"alice", 100}),
	})
	if errors.Is(err, spindle.ErrFenced) {
		return // another process leads, and nothing was written
	}
}

func ExampleLock_Fence() {
	var ctx context.Context
	var db *spanner.Client
	var lock *spindle.Lock

	_, token := lock.HasLock()
	_, err := db.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		// Read and write your own rows here. The transaction commits only while token is valid.
		return txn.BufferWrite([]*spanner.Mutation{lock.Fence(token)})
	})
	if err != nil {
		log.Print(err)
	}
}

func dueJobs() []*spanner.Mutation { return nil }

// A request that only the leader can serve is forwarded to the leader, without a call to Spanner.
func ExampleLock_Seen() {
	var lock *spindle.Lock

	http.HandleFunc("/jobs", func(w http.ResponseWriter, r *http.Request) {
		leader, age, ok := lock.Seen()
		if locked, _ := lock.HasLock(); locked {
			return // serve it here
		}
		if !ok || age > leader.Lease {
			http.Error(w, "nobody leads at the moment", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, r, leader.Value+r.URL.Path, http.StatusTemporaryRedirect) // its WithValue
	})
}

func ExampleLock_Leader() {
	var ctx context.Context
	var db *spanner.Client

	leader, err := spindle.New(db, "locktable", "mylock").Leader(ctx)
	switch {
	case errors.Is(err, spindle.ErrNoLeader):
		fmt.Println("nobody leads")
	case err != nil:
		log.Print(err)
	default:
		fmt.Println(leader.ID, "leads since", leader.Token.Time(), "and is reached at", leader.Value)
	}
}
