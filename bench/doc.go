// Package bench compares spindle's package lock with etcd's mutex on one machine. It has only benchmarks, and is a Go
// module of its own so that no other module depends on etcd's server.
//
//	go test -run '^$' -bench . -benchtime 1x
//
// Spindle's locks run on the Spanner emulator, and etcd's run on a single etcd server with its default settings. Both
// servers are separate processes, and each benchmark starts new ones, because the emulator becomes slower with each
// commit. Each waiter is also a separate process. The TTL of etcd's sessions is 10 s, which is spindle's default lease.
//
// The benchmarks print times but do not judge them. They fail only if a count that does not depend on the machine is
// wrong: the number of turns that each process got, or the number of permits.
//
// The benchmarks are in bench_test.go. The code in system_test.go starts the two servers and connects to them, the code
// in worker_test.go runs in the processes, and the code in turns_test.go evaluates their reports.
package bench
