package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
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
	// Do not pass ctx here: the client must outlive it to release the lock.
	db, err := spanner.NewClient(context.Background(), database, spindle.ClientOptions(lease)...)
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
			case <-ctx.Done(): // lost or stopping; context.Cause(ctx) has the reason
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

func ExampleLock_RunAndWait() {
	var lock *spindle.Lock
	var server *http.Server

	group, ctx := errgroup.WithContext(context.Background())
	group.Go(func() error { return lock.RunAndWait(ctx) })
	group.Go(server.ListenAndServe)
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) }) // if either of them ends, so does the other
	log.Print(group.Wait())
}

func ExampleApply() {
	var ctx context.Context
	var term spindle.Term      // a leader's term
	var accounts *lock.Mutex   // a locked mutex
	var part group.Partition   // a partition on which this process works
	var ms []*spanner.Mutation // mutations that are committed only while all three are held

	if _, err := spindle.Apply(ctx, []spindle.Holding{term, accounts, part}, ms); errors.Is(err, spindle.ErrFenced) {
		log.Print("not written: ", err)
	}
}

func ExampleLock_Health() {
	var lock *spindle.Lock

	if err := lock.Health(); err != nil {
		log.Print(err) // says what is wrong, and since when
	}
}

func ExampleProbe() {
	var lock *spindle.Lock

	http.Handle("GET /livez", spindle.Probe(lock.Live))     // Kubernetes restarts the container if this fails
	http.Handle("GET /readyz", spindle.Probe(lock.Leading)) // Kubernetes sends requests only to the pod of the leader

	// The methods have the signature of healthz.Checker in controller-runtime: mgr.AddHealthzCheck("lock", lock.Live).
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
		// Read and write the rows that the transaction is about. It commits only while token is valid.
		return txn.BufferWrite([]*spanner.Mutation{lock.Fence(token)})
	})
	if err != nil {
		log.Print(err)
	}
}

func dueJobs() []*spanner.Mutation { return nil }

// A request that only the leader can serve is redirected to the leader, without an RPC to Spanner.
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
		http.Redirect(w, r, leader.Value+r.URL.Path, http.StatusTemporaryRedirect) // the leader's WithValue
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
