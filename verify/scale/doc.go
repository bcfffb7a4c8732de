// Package scale runs more processes, locks, waiters and partitions than any emulator can, in virtual time, and prints
// what they cost. Its tests fail if a cost grows faster than the load.
package scale
