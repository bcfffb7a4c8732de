//go:build controlplane

package check

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

const (
	limit = time.Minute // for what should take seconds
	pause = 50 * time.Millisecond
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

// A kubelet makes pods run that have no node. A pod runs unless its image is bad, and is ready if this is what ready says.
type kubelet struct {
	cluster
	namespace string

	mu    sync.Mutex
	ready func(core.Pod) bool
}

const badImage = "REGISTRY/program:BAD"

func bad(p core.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c core.Container) bool { return c.Image == badImage })
}

// kubelet starts a kubelet for the pods of a namespace. It ends with the test.
func (c cluster) kubelet(t *testing.T, namespace string, ready func(core.Pod) bool) *kubelet {
	k := &kubelet{cluster: c, namespace: namespace, ready: ready}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		for ctx.Err() == nil {
			changes, err := c.CoreV1().Pods(namespace).Watch(ctx, meta.ListOptions{})
			if err != nil {
				continue
			}
			for e := range changes.ResultChan() {
				if p, is := e.Object.(*core.Pod); is {
					k.report(ctx, *p)
				}
			}
		}
	})
	return k
}

// becomes changes which pods are ready, and reports this for all pods.
func (k *kubelet) becomes(t *testing.T, ready func(core.Pod) bool) {
	t.Helper()
	k.mu.Lock()
	k.ready = ready
	k.mu.Unlock()
	for _, p := range k.pods(t) {
		k.report(t.Context(), p)
	}
}

// report writes a pod's status, unless it is written already. A ready pod has been ready for an hour, so no test waits for
// minReadySeconds. The pod may be gone.
func (k *kubelet) report(ctx context.Context, p core.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	want, phase := core.ConditionFalse, core.PodRunning
	switch {
	case bad(p):
		phase = core.PodPending
	case k.ready(p):
		want = core.ConditionTrue
	}
	if p.Status.Phase == phase && isReady(p) == (want == core.ConditionTrue) {
		return
	}
	patch := fmt.Appendf(nil, `{"status": {"phase": %q, "conditions": [{"type": "Ready", "status": %q, "lastTransitionTime": %q}]}}`,
		phase, want, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	_, _ = k.CoreV1().Pods(k.namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
}

// pods returns the pods that are not being deleted, the oldest first.
func (k *kubelet) pods(t *testing.T) []core.Pod {
	t.Helper()
	list, err := k.CoreV1().Pods(k.namespace).List(t.Context(), meta.ListOptions{})
	require.NoError(t, err)
	pods := slices.DeleteFunc(list.Items, func(p core.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b core.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}

// counts returns how many pods have the good image, how many have the bad one, and how many are ready.
func (k *kubelet) counts(t *testing.T) (n struct{ good, bad, ready int }) {
	t.Helper()
	for _, p := range k.pods(t) {
		if bad(p) {
			n.bad++
		} else {
			n.good++
		}
		if isReady(p) {
			n.ready++
		}
	}
	return n
}

func isReady(p core.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool { return c.Type == core.PodReady && c.Status == core.ConditionTrue })
}

func everyPod(core.Pod) bool { return true }

func noPod(core.Pod) bool { return false }

// setImage updates the image of the manifest's workload, as kubectl set image does.
func (k *kubelet) setImage(t *testing.T, m manifest, image string) {
	t.Helper()
	patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": %q}]`, image)
	for _, d := range of[*apps.Deployment](m) {
		_, err := k.AppsV1().Deployments(k.namespace).Patch(t.Context(), d.Name, types.JSONPatchType, patch, meta.PatchOptions{})
		require.NoError(t, err)
	}
	for _, s := range of[*apps.StatefulSet](m) {
		_, err := k.AppsV1().StatefulSets(k.namespace).Patch(t.Context(), s.Name, types.JSONPatchType, patch, meta.PatchOptions{})
		require.NoError(t, err)
	}
}

// settled waits until the controllers have seen the last change, and nothing is left for them to do until a pod changes.
func (k *kubelet) settled(t *testing.T, m manifest, pods, updated int) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, d := range of[*apps.Deployment](m) {
			now, err := k.AppsV1().Deployments(k.namespace).Get(context.Background(), d.Name, meta.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, now.Generation, now.Status.ObservedGeneration)
			require.EqualValues(t, []int{pods, updated}, []int{int(now.Status.Replicas), int(now.Status.UpdatedReplicas)}, d.Name)
		}
		for _, s := range of[*apps.StatefulSet](m) {
			now, err := k.AppsV1().StatefulSets(k.namespace).Get(context.Background(), s.Name, meta.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, now.Generation, now.Status.ObservedGeneration)
			require.EqualValues(t, []int{pods, updated}, []int{int(now.Status.Replicas), int(now.Status.UpdatedReplicas)}, s.Name)
		}
	}, limit, pause)
}

// available waits until so many pods of a deployment are available.
func (k *kubelet) available(t *testing.T, deployment string, pods int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		d, err := k.AppsV1().Deployments(k.namespace).Get(t.Context(), deployment, meta.GetOptions{})
		require.NoError(c, err)
		require.EqualValues(c, pods, d.Status.AvailableReplicas)
	}, limit, pause, deployment)
}

// evict asks the API server to evict a pod, as a drain does, until it agrees.
func (k *kubelet) evict(t *testing.T, p core.Pod) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := k.PolicyV1().Evictions(k.namespace).Evict(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: p.Name, Namespace: k.namespace}})
		if !apierrors.IsNotFound(err) {
			require.NoError(c, err)
		}
	}, limit, pause, "%s can't be evicted", p.Name)
}

// oldest makes only the oldest pod ready, as a readiness probe does that succeeds only on the holder.
func (k *kubelet) oldest(t *testing.T) func(core.Pod) bool {
	first := k.pods(t)[0].Name
	return func(p core.Pod) bool { return p.Name == first }
}

// TestCluster applies the manifests to a real control plane.
func TestCluster(t *testing.T) {
	c := start(t)
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			name := "m-" + strings.TrimSuffix(m.name, ".yaml")
			c.apply(t, m, name)
			switch m.name {
			case "deployment.yaml", "leader.yaml", "agent.yaml":
				c.everyPodIsReady(t, m, name)
			case "service.yaml":
				c.onlyTheHolderIsReady(t, m, name)
			case "group.yaml":
				c.podsKeepTheirNames(t, m, name)
			}
		})
	}
}

// everyPodIsReady: a bad image stops no old pod, a good one replaces all of them, and pods can be evicted one by one, or if
// none is ready.
func (c cluster) everyPodIsReady(t *testing.T, m manifest, namespace string) {
	k := c.kubelet(t, namespace, everyPod)
	k.settled(t, m, 3, 3)
	k.setImage(t, m, badImage)
	k.settled(t, m, 6, 3)
	assert.Equal(t, struct{ good, bad, ready int }{3, 3, 3}, k.counts(t), "the old pods run beside the bad ones")
	k.setImage(t, m, "REGISTRY/program:NEXT")
	k.settled(t, m, 3, 3)
	for _, p := range k.pods(t) {
		assert.Equal(t, "REGISTRY/program:NEXT", p.Spec.Containers[0].Image)
		k.evict(t, p)
	}
	k.settled(t, m, 3, 3)
	k.becomes(t, noPod)
	for _, p := range k.pods(t) {
		k.evict(t, p)
	}
}

// onlyTheHolderIsReady: a bad image does not stop the holder. With a good one, the update goes on once a new pod holds the
// lock. The holder can be evicted.
func (c cluster) onlyTheHolderIsReady(t *testing.T, m manifest, namespace string) {
	k := c.kubelet(t, namespace, noPod)
	k.settled(t, m, 3, 3)
	k.becomes(t, k.oldest(t))
	k.available(t, "nightly", 1)
	holder := k.pods(t)[0].Name
	k.setImage(t, m, badImage)
	k.settled(t, m, 4, 3)
	assert.Equal(t, struct{ good, bad, ready int }{1, 3, 1}, k.counts(t), "the holder works")
	assert.Equal(t, holder, k.pods(t)[0].Name)

	k.setImage(t, m, "REGISTRY/program:NEXT")
	k.settled(t, m, 4, 3)
	pods := k.pods(t)
	assert.Equal(t, holder, pods[0].Name, "three new pods stand by")
	k.becomes(t, func(p core.Pod) bool { return p.Name == pods[1].Name }) // spindle handover
	k.settled(t, m, 3, 3)
	assert.NotContains(t, k.names(t), holder)
	k.evict(t, pods[1])
}

func (k *kubelet) names(t *testing.T) (names []string) {
	for _, p := range k.pods(t) {
		names = append(names, p.Name)
	}
	return names
}

// podsKeepTheirNames: an update stops at the first pod that does not become ready, and goes on when the image is good
// again. Pods can be evicted one by one, or if none is ready.
func (c cluster) podsKeepTheirNames(t *testing.T, m manifest, namespace string) {
	k := c.kubelet(t, namespace, everyPod)
	k.settled(t, m, 4, 4)
	names := k.names(t)
	k.setImage(t, m, badImage)
	k.settled(t, m, 4, 1)
	assert.Equal(t, struct{ good, bad, ready int }{3, 1, 3}, k.counts(t))
	k.setImage(t, m, "REGISTRY/program:NEXT")
	k.settled(t, m, 4, 4)
	assert.ElementsMatch(t, names, k.names(t))
	k.evict(t, k.pods(t)[0])
	k.settled(t, m, 4, 4)
	k.becomes(t, noPod)
	for _, p := range k.pods(t) {
		k.evict(t, p)
	}
}
