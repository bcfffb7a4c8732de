// Workers shows a pool of goroutines that work only while their process holds a lock.
//
//	go run ./examples/workers
//
// Two sites share a queue in Spanner and compete for one lock. Each site has three workers, which process jobs only
// while their site holds the lock. When that site is stopped, the workers of the other site take over. In this example,
// both sites run in one process on an emulator. They would work the same way on two machines.
//
// The code to copy is in site.go.
package main

import "github.com/spindle-lock/spindle/internal/demokit"

func main() { demokit.Play(tell) }
