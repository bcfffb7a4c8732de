//go:build controlplane

package check

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// apply applies a manifest to a namespace, as kubectl apply --server-side does. The API server refuses unknown fields.
func (c cluster) apply(t *testing.T, m manifest, namespace string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
	require.NoError(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Discovery()))
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(m.yaml)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &o.Object))
		if kind := o.GetKind(); kind == "ServiceMonitor" || kind == "Namespace" { // the former is not a resource of this cluster
			continue
		}
		o.SetNamespace(namespace)
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		require.NoError(t, err)
		text, err := o.MarshalJSON()
		require.NoError(t, err)
		_, err = c.dynamic.Resource(mapping.Resource).Namespace(namespace).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text,
			meta.PatchOptions{FieldManager: "check", FieldValidation: meta.FieldValidationStrict})
		require.NoError(t, err, "%s: %s %s", m.name, o.GetKind(), o.GetName())
	}
}

// The API server accepts the manifests, each in a namespace of its own.
func TestCluster(t *testing.T) {
	c := start(t)
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) { c.apply(t, m, "m-"+strings.TrimSuffix(m.name, ".yaml")) })
	}
}
