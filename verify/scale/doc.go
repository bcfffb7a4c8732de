// Package scale runs more processes, locks, waiters and partitions than any emulator can, in virtual time, and prints
// what they cost. Its tests fail if something grows faster than its load.
package scale
