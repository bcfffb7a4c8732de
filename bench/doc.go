// Package bench compares spindle's package lock with etcd's mutex on one machine. It has only benchmarks, in their own Go
// module, so that no other module needs etcd's server.
//
//	go test -run '^$' -bench . -benchtime 1x
//
// Spindle's locks are on the emulator of Spanner, and etcd's on one etcd server with its default settings. Both servers are
// separate processes, new for each benchmark, because the emulator becomes slower with each commit. Each waiter is a
// separate process too. Sessions of etcd have the TTL of spindle's default lease, 10 s.
//
// The benchmarks print times, but do not judge them. They fail if a count is wrong, which depends on no machine:
// the turns that processes had, and the permits that they got.
//
// The files: bench_test.go has the benchmarks. system_test.go starts the two servers and connects to them, worker_test.go
// has what the processes do, and turns_test.go what is computed from their reports.
package bench
