// Command bench compares spindle with etcd's elections and mutexes, and with client-go's leader election. All of them
// run on one machine and have the same lease.
//
//	cd bench && go run .    # prints the results as a table
//
// Run nothing else on the machine at the same time. A full run takes about ten minutes. The systems are measured one
// after the other, and each measurement starts its own servers: an emulator for spindle, a single server with default
// settings for etcd, and a kube-apiserver with such an etcd for client-go. Every candidate is a separate process.
//
// Client-go is measured only if there is a kube-apiserver. The flag -build-apiserver compiles one, which takes several
// minutes. Later runs reuse it, because it stays in the user's cache directory.
//
// Bench is a separate Go module, so that the main module does not depend on etcd's server or on Kubernetes.
package main
