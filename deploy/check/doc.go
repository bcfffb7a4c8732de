// Package check contains the tests of the manifests in deploy/kubernetes. They need no cluster:
//
//	go test .
//
// With a build tag, the tests also start an API server and its controllers on loopback, and apply the manifests there.
// controlplane/go.mod has the versions of these programs. Building them takes minutes, unless -binaries names a
// directory that contains them:
//
//	go test -tags controlplane -run 'Cluster|Try' -v .
package check
