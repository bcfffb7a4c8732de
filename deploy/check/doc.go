// Package check contains the tests of the manifests in deploy/kubernetes. They need no cluster:
//
//	go test .
//
// With the build tag controlplane, the tests also start etcd and an API server on loopback, and apply the manifests
// there:
//
//	go test -tags controlplane -run 'Cluster|Try' -v .
//
// This first builds both programs in the versions that controlplane/go.mod requires, which takes minutes. To use
// existing programs instead, pass -binaries with the directory that contains them.
package check
