//go:build unix

// Partitions shows several processes that consume one queue. The queue has 16 partitions, and package group assigns
// each of them to one process.
//
//	go run ./examples/partitions
//
// The program starts an emulator and three processes, and shows which process owns each partition. One process is
// killed, a fourth one joins, one is paused for longer than its lease, and one leaves. Items are appended to the queue
// throughout, and each item gets exactly one result.
//
// The code to copy is in consumer.go.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func main() {
	orders, args := subprocess.Orders(os.Args[1:])
	if orders == nil && len(args) > 0 {
		fmt.Fprintf(os.Stderr, "partitions: unexpected argument %q\n", args[0])
		os.Exit(2)
	}
	demokit.Play(func(ctx context.Context) error {
		if orders != nil {
			return takePart(ctx, args[0], args[1])
		}
		return tell(ctx)
	})
}

// takePart runs one of the processes that the demonstration starts. It reports each refused commit to its parent
// process, because such a commit leaves no trace in the tables.
func takePart(ctx context.Context, path, id string) error {
	db, err := spindle.Open(ctx, path, spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	return newConsumer(db, id, func(partition string) { fmt.Println("late", partition) }).run(ctx)
}
