//go:build unix

// Fenced shows what happens when a leader is paused for longer than its lease just before it writes. With a fence, the
// late write is rejected. Without one, it overwrites the write of the leader's successor.
//
//	go run ./examples/fenced
//
// The program starts an emulator and two processes, and pauses one of them for real, with SIGSTOP. Garbage collection,
// a suspended machine or a slow disk can do the same to any program.
//
// The code to copy is makeDeposit, in teller.go.
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
