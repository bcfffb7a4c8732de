// Scheduler is a service with several replicas, one of which runs a job every second.
//
//	export SPINDLE_DB=projects/P/instances/I/databases/D
//	go run ./examples/scheduler -listen localhost:8080
//
// Start several replicas, each with its own address. Every replica shows the leader at /leader. The leader lists the
// latest runs at /jobs, and the other replicas redirect to it. If you stop the leader with Ctrl+C or SIGTERM, or kill
// it, another replica takes over. The job is in job.go, and the pages are in web.go.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
)

const lease = 3 * time.Second

// replica is one process of the service.
type replica struct {
	url  string // its own URL
	db   *spanner.Client
	lock *spindle.Lock
}

func main() {
	listen := flag.String("listen", "localhost:8080", "the address to serve on; while this replica leads, the others redirect clients to it")
	flag.Parse()
	ctx, quit := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer quit()
	if err := run(ctx, *listen, os.Getenv("SPINDLE_DB")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, database string) error {
	if err := ddl.Create(ctx, database, "locktable"); err != nil { // changes nothing if the table exists
		return err
	}
	if err := createRuns(ctx, database); err != nil {
		return err
	}
	db, err := spindle.Open(ctx, database, spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	r := &replica{url: "http://" + listener.Addr().String(), db: db}
	r.lock = spindle.New(db, "locktable", "scheduler",
		spindle.WithLease(lease),
		spindle.WithValue(r.url),    // the URL to which other replicas redirect
		spindle.WithHandover(),      // when stopped, lead until the other replicas have had time to notice
		spindle.WithStall(10*lease), // a replica whose job hangs does not keep the lock
		spindle.WithLeader(r.lead))
	server := &http.Server{Handler: r.handler(), ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	if err := r.lock.Run(ctx, done); err != nil {
		return err
	}
	var workers sync.WaitGroup
	workers.Go(func() { r.sweep(ctx) })
	log.Print("serving at ", r.url)
	go func() { stop(server.Serve(listener)) }() // a replica that can't serve must not lead

	err = <-done // until now, this replica may have been the leader, so it had to serve
	stop(nil)
	workers.Wait()
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(patience))
}
