// Simple elects a leader among several processes.
//
// To see a demonstration with an emulator, three processes, a crash, a pause and a graceful stop, run:
//
//	go run ./examples/simple
//
// To hold an election in your own database, run this command in several terminals:
//
//	go run ./examples/simple -db projects/P/instances/I/databases/D -name mylock -create
//
// Stop one of the processes with Ctrl+C, or kill it, and watch the others. To use a database on an emulator, set
// SPANNER_EMULATOR_HOST to the emulator's host:port.
//
// The code to copy is in candidate.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/demokit"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func main() {
	orders, args := subprocess.Orders(os.Args[1:])
	var c candidate
	flag.StringVar(&c.database, "db", "", "compete for a lock in the database `projects/P/instances/I/databases/D`\ninstead of running the demonstration")
	flag.StringVar(&c.table, "table", "locktable", "the lock table")
	flag.StringVar(&c.name, "name", "mylock", "the lock's name")
	flag.StringVar(&c.id, "id", "", "the id that other candidates see (default: host name, process id and a UUID)")
	flag.DurationVar(&c.lease, "lease", 10*time.Second, "how long a leader keeps the lock without a heartbeat")
	flag.BoolVar(&c.create, "create", false, "create the table if it does not exist")
	_ = flag.CommandLine.Parse(args) // exits on an error
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "simple: unexpected argument %q; only flags are accepted (see -help)\n", flag.Arg(0))
		os.Exit(2)
	}
	if c.database == "" {
		if flag.NFlag() > 0 {
			fmt.Fprintln(os.Stderr, "simple: -db is missing; set it, or omit all flags to run the demonstration")
			os.Exit(2)
		}
		demokit.Play(demonstrate)
		return
	}
	if err := compete(c, orders != nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compete runs one candidate until the process receives SIGINT or SIGTERM. It then releases the lock, unless a second
// signal ends the process first. In the demonstration, the parent process reads the candidate's output.
func compete(c candidate, inDemo bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	c.log = slog.Default() // the lock logs who leads, and when it is lost
	c.wrote = func(token spindle.Token, err error) {
		if err != nil {
			c.log.Warn("the leader's write failed", "token", token, "err", err)
		}
	}
	if inDemo {
		c.log, c.wrote = slog.New(slog.DiscardHandler), report
	}
	err := c.run(ctx)
	var table *ddl.SchemaError
	if errors.As(err, &table) && !c.create {
		err = fmt.Errorf("%w\nTo create the table, run this program with -create", err)
	}
	return err
}

// report tells the demonstration the result of a write.
func report(token spindle.Token, err error) {
	switch {
	case err == nil:
		fmt.Println(token)
	case errors.Is(err, spindle.ErrFenced):
		fmt.Println(token, demokit.Rejected)
	}
}
