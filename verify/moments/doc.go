// Package moments delivers every event at every moment of a machine's life, in virtual time. A machine is an elector, a
// mutex, a process's queue for a mutex, a semaphore, a Once, or a member of a group. Each of its requests has two
// moments: just before the request is sent, and after it has taken effect but before the reply arrives. By default, the
// tests run a random sample of the cases; with SPINDLE_ALL_CASES=1, they run all of them. The tests see a machine only
// through its table, its clock and its public API, so internal changes do not affect them.
package moments
