// Package lock is for programs that acquire a lock, do some protected work, and release the lock. It provides a
// [Mutex], a [Set] of several locks that are acquired together, and a [Semaphore]. A [Once] does a piece of work once,
// no matter how many processes try.
//
// Like a spindle.Lock, all of these hold leases in a lock table, and follow the same protocol. They are renewed in the
// background while they are held, and are lost if no renewal succeeds for the length of the lease. Their fencing tokens
// protect writes in the same database. A Mutex and a spindle.Lock with the same name in the same table exclude each
// other.
//
// Which type to use depends on the work:
//
//   - spindle.New: one process holds the lock for as long as it runs, with other processes on standby
//   - Mutex: only one process at a time may do a piece of work
//   - Set: a piece of work needs several resources at the same time
//   - Semaphore: only a limited number of workers may work at the same time
//   - Once: a scheduled job or a migration must run once
//
// A wait ends when its ctx ends. Before the call returns, it tries to give up its place in the queue, for at most a
// tenth of the lease or 500 ms, whichever is shorter. If a claim was in progress and succeeds, the lock is released in
// the background, usually within a few round trips. If the process exits before the release, the lock stays held until
// its lease expires.
//
// Waiting processes of the same priority are served in order of arrival. A process that has to wait puts a ticket into
// the table. Its goroutines share the ticket, and queue among themselves in order of arrival. If a process has died or
// is slow, the other processes overtake it after a short time. A killed process's ticket stops counting after three of
// its leases or 30 s, whichever is longer (for a Set, sooner). Other waiters may also overtake a Set until it is first
// in the queues of all its locks. A spindle.Lock does not queue: it gets the lock if one of its polls finds the lock
// free. The help of spindle exec says when that command queues.
//
// docs/locks.md explains the queues, and why the protocol is safe.
package lock

// The source files:
//
//   - mutex.go, set.go, semaphore.go, once.go: the types; key.go: the keys of a Once; do.go: running a function
//   - wait.go: a goroutine's wait for locks; seek.go: a goroutine's search for a slot of a semaphore
//   - queue.go: the queue of a process's goroutines; internal/wait has the queue of processes
//   - held.go: locks that are held; holding.go: writes under them
//
// Package internal/elect wins and keeps locks, and internal/fair decides which waiter comes next.
