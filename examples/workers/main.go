// Workers shows a pool of goroutines that work only while their process holds a lock.
//
//	go run ./examples/workers
//
// Two sites share a queue in Spanner. Each has three workers, and competes for the same lock. Only the workers of the site
// that holds the lock work. When that site is stopped, the other site's workers begin. Both sites run in this process, on
// an emulator that it starts; on two machines nothing would differ.
//
// The code to copy is in site.go.
package main

import "github.com/spindle-lock/spindle/internal/demokit"

func main() { demokit.Play(tell) }
