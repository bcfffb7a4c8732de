// Package lock is for programs that take a lock, do protected work and give the lock back, rather than run a loop. It
// provides a [Mutex], a [Set] of several locks that are taken together, and a [Semaphore]. A [Once] does its work once,
// however many processes try.
//
// All of these are leases in the same table as the elector's locks, and follow the same protocol. They are renewed in
// the background while they are held, and lost if no renewal succeeds for the length of the lease. Their fencing tokens
// protect writes in the same database. A Mutex and a spindle.Lock with the same name exclude each other.
//
// Use spindle.New if a process should hold a lock for as long as it runs, with other processes on standby. Use a Mutex
// around pieces of work that take turns, a Set if a piece of work needs several things at the same time, a Semaphore if
// a limited number of workers can work at the same time, and a Once for a scheduled job or a migration.
//
// A wait ends when its ctx ends. If a claim is in progress at that instant, it is given back in the background, which
// takes a few round trips. If the process exits first, the claim blocks other processes until its lease expires.
//
// Processes take turns, first come, first served. A process that has to wait puts a ticket into the table. Its
// goroutines share its turns, and queue among themselves in the order in which they came. If a process has died or is
// slow, the others pass it after a short time. A Set is passed by others until it is first in the queues of all its
// locks. Electors and the spindle command do not queue, but take a lock when they find it free.
//
// The files: mutex.go, set.go and semaphore.go have the types, and do.go runs a function under one of them. once.go has
// Once, and key.go its keys. contender.go competes for locks, line.go keeps a waiter's place among the processes, and
// held.go holds the locks. queue.go is the queue within a process. seek.go and slots.go let its goroutines take slots
// side by side. name.go makes names from parts. internal/elect wins and keeps a lock, and internal/fair decides whose
// turn it is.
package lock
