// Package spindle provides leader election and distributed locks backed by a table in Cloud Spanner.
//
// Each process creates a [Lock] with the same name. [Lock.Run] competes for the lock in the background and, once
// elected, keeps the lock by sending heartbeats. [Lock.HasLock] reports whether this process holds the lock now, and
// returns the fencing [Token] of its term. HasLock makes no call to Spanner.
//
// At most one process holds a lock at any instant, provided that no holder's clock runs more than 1% slow, and that
// nobody releases or deletes the lock by hand. Clocks of different machines are never compared, because Spanner's clock
// alone decides when a lease has expired. Fenced writes to the same database don't depend on clocks at all:
// [Lock.Apply], [Lock.ReadWriteTransaction] and [Lock.Fence] make a commit fail if its token has been superseded.
//
// The package does not guarantee that a lock always has a holder: after a crash, the lock has none until the lease
// expires. Candidates of the same priority are elected in no particular order. The package can't stop work that neither
// checks HasLock nor fences its writes.
//
// Package lock provides mutexes, semaphores and jobs that run only once. Package group divides partitions among
// processes.
//
// docs/locks.md explains why the protocol is safe.
package spindle

// The source files (docs/architecture.md describes the rest of the code):
//
//   - spindle.go: the lock; options.go: its options; client.go: options for the Spanner client
//   - run.go: the background loop; leader.go: the loop during a term; course.go: its state machine
//   - term.go: the leader function's argument; stepdown.go: how a term is ended on request
//   - fence.go: fenced writes
//   - seen.go and event.go: how a lock appears to other processes and to observers; health.go: probes
