//go:build unix

// Fenced shows what becomes of a write that a leader was about to make when it was paused for longer
// than its lease: with a fence it is rejected, and without one it overwrites its successor's.
//
//	go run ./examples/fenced
//
// It starts an emulator and two processes, and pauses one of them for real, with SIGSTOP. A garbage
// collection, a suspended machine or a slow disk does the same to a program, only less often.
//
// The code to copy is makeDeposit, in teller.go.
package main

import "github.com/spindle-lock/spindle/internal/stage"

func main() {
	if name, orders, ok := stage.Orders(); ok {
		stage.Play(teller{name: name, orders: orders}.main)
		return
	}
	stage.Play(tell)
}
