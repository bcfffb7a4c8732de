// Package moments delivers every event at every moment of a machine's life, in virtual time. A machine is an elector, a
// waiter, a semaphore's search for a slot, a Once, or a member of a group. Each of its requests has two moments: just
// before the request is sent, and after it took effect but before the reply arrives. The tests see a machine only
// through its table, its clock and its public API, so internal changes do not affect them.
package moments
