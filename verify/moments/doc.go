// Package moments delivers every event at every moment of a machine's life, in virtual time. A machine is an elector, a
// waiter, a semaphore's search, work that is done once, or a member of a group. A moment is just before one of its
// requests is sent, or just after the request took effect and before the reply arrives. The tests see a machine only
// through its table, its clock and its public API, so they survive any change inside.
package moments
