// Package check contains the tests of the manifests in deploy/kubernetes. They need no cluster:
//
//	go test .
//
// With a build tag, the tests also apply the manifests to an API server with the controllers of workloads and budgets, which
// they start on loopback. The versions of these programs are in controlplane/go.mod; building them takes minutes, and
// -binaries names a directory that contains them already:
//
//	go test -tags controlplane -run 'Cluster|Try' -v .
package check
