// Package spindle provides leader election and distributed locks backed by a table in Cloud Spanner.
//
// A [Lock] is one candidate for the lock of a given name. [Lock.Run] competes for the lock in the background and, once
// elected, keeps it with heartbeats. [Lock.HasLock] reports whether this process holds the lock now, and returns its
// fencing [Token], without a call to Spanner.
//
// At most one process holds a lock at any instant, as long as no machine's clock runs more than 1 % slow. Clocks are
// never compared with one another: Spanner's clock alone decides when a lease has expired. Fenced writes to the same
// database don't depend on clocks at all: [Lock.Apply], [Lock.ReadWriteTransaction] and [Lock.Fence] make a commit fail
// once its token has been superseded.
//
// The package does not guarantee that a lock always has a holder (after a crash, it has none until the lease expires),
// that candidates are elected in any particular order, or that work stops by itself if it neither checks HasLock nor is
// fenced.
//
// Use package lock for work that takes turns, and package group for work that is split into partitions.
//
// The source files:
//
//   - spindle.go: the lock; options.go: its options; client.go: options for the Spanner client
//   - run.go: the background loop; leadership.go decides the next step of a term, and lead.go carries it out
//   - term.go: the leader function's argument; stepdown.go and request.go: how a term is ended on request
//   - fence.go: fenced writes
//   - seen.go, leader.go and event.go: how a lock appears to other processes and to observers; health.go: probes
//
// The rest of the code is described in docs/architecture.md, and docs/locks.md explains why the protocol is safe.
package spindle
