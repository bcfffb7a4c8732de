// Package spindle is leader election and distributed locks on a table in Cloud Spanner.
//
// A [Lock] is one candidate for one name. [Lock.Run] stands for it in the background and keeps it with
// heartbeats; [Lock.HasLock] tells, locally, whether this process holds it now, and under which fencing
// [Token]. At most one process holds a lock at any instant, as long as no machine's clock runs more
// than a hundredth too slow: no clock is compared with another's, and expiry is judged by Spanner's
// alone. Writes in the same database need not even assume that: [Lock.Apply],
// [Lock.ReadWriteTransaction] and [Lock.Fence] make them fail once the token was superseded.
//
// What is not promised: that a lock always has a holder (after a crash it has none until the lease has
// expired), that candidates are elected in any order, or that work which neither checks HasLock nor is
// fenced stops by itself.
//
// The files: spindle.go is the lock; options.go its options; run.go the loop; fence.go the fence; leader.go
// and event.go what others see. How a lock is won and kept is in internal/elect, the steps on the table in
// internal/table; package lock is for work that takes turns. The design and its safety argument are in docs/protocol.md.
package spindle
