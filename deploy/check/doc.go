// Package check contains the tests of the Kubernetes manifests in deploy/kubernetes.
package check
