// Package lock is for "lock, do protected work, unlock" rather than a loop: a [Mutex], a [Set] of several locks taken
// at once, and a [Semaphore]. A [Once] is for work that is done once, however many processes try.
//
// They are leases in the same table as the elector's, by the same protocol: renewed in the background while they are
// held, lost when that fails for a lease, with a fencing token for writes in the same database. A Mutex and a
// spindle.Lock of one name exclude each other.
//
// Use spindle.New if a process should hold a lock for as long as it lives, with others on standby; a Mutex around
// pieces of work that take turns; a Set if a piece of work needs several things at once; a Semaphore if a few may work
// at a time; a Once for a scheduled job, or a migration.
//
// A wait ends with its ctx. A claim that is under way is then given back in the background, in a few round trips. If
// the process ends before that, the claim blocks others for a lease.
//
// Processes take turns, first come, first served. A process that has to wait puts a ticket into the table. Its
// goroutines queue first come, first served among themselves, and share its turns. A process that has died, or is slow,
// is passed after a moment. A Set is passed by others until it is first for all its locks. An elector and the command
// wait in no queue: they take a lock when they find it free.
//
// The files: mutex.go, set.go and semaphore.go have the types; do.go runs a function under one. once.go has Once, and
// key.go its keys. contender.go competes for locks, line.go keeps a waiter's place among the processes, held.go holds
// the locks. queue.go is the queue of a process; seek.go and slots.go let its goroutines take slots side by side.
// name.go makes names from parts. internal/elect wins and keeps a lock, internal/fair decides whose turn it is.
package lock
