// Package check contains the tests of the manifests in deploy/kubernetes. They need no cluster:
//
//	go test .
//
// With the build tag controlplane, the tests also start etcd and an API server on loopback, and apply the manifests
// there. By default, they build both programs, in the versions that controlplane/go.mod requires, which takes minutes.
// If -binaries names a directory that contains the programs, the tests use these instead:
//
//	go test -tags controlplane -run 'Cluster|Try' -v .
package check
