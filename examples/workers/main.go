// Workers shows a pool of goroutines that work only while their process holds a lock.
//
//	go run ./examples/workers
//
// Two sites share a queue in Spanner. Each site has three workers, and both compete for one lock. Only the workers of
// the site that holds the lock process jobs. When that site is stopped, the other site's workers begin. Both sites run
// in this process, on an emulator that the program starts, but they would run in the same way on two machines.
//
// The code to copy is in site.go.
package main

import "github.com/spindle-lock/spindle/internal/demokit"

func main() { demokit.Play(tell) }
