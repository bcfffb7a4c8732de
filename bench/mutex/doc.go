// Package mutex compares spindle's mutex (package lock) with etcd's mutex on one machine. It contains only benchmarks.
//
//	go test -run '^$' -bench . -benchtime 1x
//
// Spindle runs on the Spanner emulator, and etcd runs on a single server with its default settings. Each benchmark
// starts a new server, because the emulator slows down with each commit. The server and all waiters run in separate
// processes. The TTL of etcd's sessions is 10 s, the same as spindle's default lease.
//
// No benchmark fails because it is slow. A benchmark fails only if a count is wrong, such as the number of times
// that each process got the lock, or the number of permits granted.
//
// The benchmarks are in bench_test.go. The code that starts the servers and connects to them is in system_test.go. The
// code that runs in the waiting processes is in worker_test.go, and turns_test.go evaluates their reports.
package mutex
