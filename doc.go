// Package spindle provides leader election and distributed locks on a table in Cloud Spanner.
//
// A [Lock] is one candidate for one name. [Lock.Run] competes for the lock in the background and keeps it
// with heartbeats. [Lock.HasLock] says whether this process holds it now, and under which fencing [Token],
// without asking Spanner.
//
// At most one process holds a lock at any instant, as long as no machine's clock runs more than 1 % slow.
// No two clocks are compared: expiry is judged by Spanner's clock alone. Fenced writes in the same database
// don't depend on clocks at all: [Lock.Apply], [Lock.ReadWriteTransaction] and [Lock.Fence] make a commit
// fail once its token was superseded.
//
// Not promised: that a lock always has a holder (after a crash there is none until the lease expires), an order among
// candidates, or that work stops by itself if it neither checks HasLock nor is fenced.
//
// Package lock is for work that takes turns, package group for work that is split into partitions.
//
// The files: spindle.go has the lock, options.go its options, client.go the options of the Spanner client. run.go is
// the loop; leadership.go decides what a term does next, and lead.go does it. term.go is the leader function's
// argument; stepdown.go and request.go ask for the end of a term. fence.go has the fence. seen.go, leader.go and
// event.go have what others see, health.go what probes see. docs/architecture.md says where everything else is, and
// docs/locks.md why it is safe.
package spindle
