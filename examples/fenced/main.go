//go:build unix

// Fenced shows what happens when a leader is paused just before it writes, and its lease expires. With a fence, the
// late write is rejected. Without a fence, it overwrites the next leader's write.
//
//	go run ./examples/fenced
//
// The program starts an emulator and two processes, and pauses one of the processes with SIGSTOP. In production,
// garbage collection, a suspended machine or a slow disk can pause a process in the same way.
//
// The code to copy is makeDeposit in teller.go.
package main

import (
	"context"

	"github.com/spindle-lock/spindle/internal/demokit"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

func main() {
	subprocess.Main(func(args []string, orders <-chan string) error {
		demokit.Play(func(ctx context.Context) error { return teller{orders: orders}.main(ctx, args) })
		return nil
	})
	demokit.Play(tell)
}
