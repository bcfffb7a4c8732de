// Workers shows a pool of goroutines that work only while their process holds a lock.
//
//	go run ./examples/workers
//
// Two sites, each with three workers and a lock of its own, share a queue in Spanner. Only the workers
// of the site that holds the lock work; when that site is stopped, the other one's go on. Both sites
// run in this process, on an emulator that it starts: nothing would differ between two machines.
//
// The code to copy is in site.go.
package main

import "github.com/spindle-lock/spindle/internal/stage"

func main() { stage.Play(tell) }
