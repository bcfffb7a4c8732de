//go:build unix

// Partitions consumes a queue of 16 partitions with several processes, which use package group to divide the partitions
// among themselves.
//
//	go run ./examples/partitions
//
// The program starts an emulator and three processes, and draws a picture of which process has which partitions. One
// process is killed, one is paused for longer than its lease, and one leaves. A fourth process joins; the program
// prints the command with which you can start it yourself, in a second terminal. Items are appended the whole time, and
// each one is processed exactly once.
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
	join := flag.String("join", "", "join the group in this database, `projects/P/instances/I/databases/D`,\ninstead of showing the demonstration")
	id := flag.String("id", you, "the name of the process that joins")
	wait := flag.Duration("wait", 12*time.Second, "how long the demonstration waits for you to join")
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
