// Package scale runs more processes, locks, waiters and partitions than an emulator can handle, in virtual time, and
// logs what they cost. Its tests fail if a cost grows faster than the load. By default, they run only a small part of
// the load; with -full, they run all of it.
package scale
