// Command bench compares spindle with other systems that elect leaders, on one machine and with the same lease: with
// etcd's elections and mutexes, and with client-go's leader election.
//
//	cd bench && go run .    # prints the results as a table
//
// Run nothing else on the machine at the same time. A full run takes about ten minutes. The systems are measured one
// after the other, each on servers that are started for it: spindle on the emulator, etcd on a single server with
// default settings, and client-go on a kube-apiserver with such an etcd. Every candidate is a separate process.
//
// Client-go is measured if there is a kube-apiserver, which -build-apiserver compiles. Compiling takes several minutes,
// but only once, because the result stays in the user's cache directory.
//
// Bench is a separate Go module, so the main module does not depend on etcd's server or on Kubernetes.
package main
