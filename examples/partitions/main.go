//go:build unix

// Partitions shows several processes that consume one queue. The queue has 16 partitions, and package group assigns
// each of them to one process.
//
//	go run ./examples/partitions
//
// The program starts an emulator and three processes, and shows which process owns each partition. One process is
// killed, one is paused for longer than its lease, one leaves, and a fourth one joins. You can start the fourth process
// yourself with a command that the program prints. Items are appended to the queue throughout, and each item is
// processed exactly once.
//
// The code to copy is in consumer.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/internal/demokit"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func main() {
	orders, args := subprocess.Orders(os.Args[1:])
	join := flag.String("join", "", "join the group in the database `projects/P/instances/I/databases/D`\ninstead of running the demonstration")
	id := flag.String("id", you, "the name of the joining process")
	wait := flag.Duration("wait", 12*time.Second, "how long to wait for you to join before starting a fourth process")
	_ = flag.CommandLine.Parse(args) // exits on an error
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "partitions: unexpected argument %q; only flags are accepted (see -help)\n", flag.Arg(0))
		os.Exit(2)
	}
	demokit.Play(func(ctx context.Context) error {
		switch {
		case *join == "":
			return tell(ctx, *wait)
		case orders != nil:
			return takePart(ctx, *join, *id)
		}
		return joinIn(ctx, *join, *id)
	})
}
