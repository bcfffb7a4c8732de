package check

import (
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A workload is a Deployment or a StatefulSet.
type workload struct {
	in             manifest
	name           string
	replicas       int
	minReady       int32
	maxUnavailable int // pods that an update may stop before their successors are available
	selector       *meta.LabelSelector
	pod            core.PodTemplateSpec
}

func workloads(t *testing.T, m manifest) (all []workload) {
	t.Helper()
	for _, d := range of[*apps.Deployment](m) {
		w := workload{m, m.name + "/" + d.Name, int(*d.Spec.Replicas), d.Spec.MinReadySeconds, 0, d.Spec.Selector, d.Spec.Template}
		switch rolling := d.Spec.Strategy.RollingUpdate; {
		case d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType:
			w.maxUnavailable = w.replicas
		case rolling != nil:
			n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, w.replicas, false)
			require.NoError(t, err)
			w.maxUnavailable = n
		default:
			w.maxUnavailable = w.replicas / 4
		}
		all = append(all, w)
	}
	for _, s := range of[*apps.StatefulSet](m) {
		require.Nil(t, s.Spec.UpdateStrategy.RollingUpdate, "an update replaces one pod at a time")
		all = append(all, workload{m, m.name + "/" + s.Name, int(*s.Spec.Replicas), s.Spec.MinReadySeconds, 1, s.Spec.Selector, s.Spec.Template})
	}
	return all
}

// replicated returns the workloads with several pods, in all manifests.
func replicated(t *testing.T) (found []workload) {
	for _, m := range all(t) {
		for _, w := range workloads(t, m) {
			if w.replicas > 1 {
				found = append(found, w)
			}
		}
	}
	require.Len(t, found, 6)
	return found
}

// everyContainer yields the containers of all workloads.
func everyContainer(t *testing.T) iter.Seq2[workload, core.Container] {
	return func(yield func(workload, core.Container) bool) {
		for _, m := range all(t) {
			for _, w := range workloads(t, m) {
				for _, c := range w.containers() {
					if !yield(w, c) {
						return
					}
				}
			}
		}
	}
}

// containers returns all containers of the pod, sidecars and other init containers first.
func (w workload) containers() []core.Container {
	return append(append([]core.Container{}, w.pod.Spec.InitContainers...), w.pod.Spec.Containers...)
}

// serving returns the containers whose readiness decides whether the pod is ready, and that have a probe for it.
func (w workload) serving() (found []core.Container) {
	for _, c := range w.containers() {
		if c.ReadinessProbe != nil {
			found = append(found, c)
		}
	}
	return found
}

// canBeReady returns how many of the pods can be ready at the same time.
func (w workload) canBeReady() int {
	for _, c := range w.serving() {
		if get := c.ReadinessProbe.HTTPGet; get != nil && get.Path == "/readyz" { // true only of the holder
			return 1
		}
	}
	return w.replicas
}

func (w workload) selectedBy(t *testing.T, s *meta.LabelSelector) bool {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return !selector.Empty() && selector.Matches(labels.Set(w.pod.Labels))
}

// spindleArgs returns the arguments with which a container runs spindle, or false if it runs another program.
func spindleArgs(c core.Container) ([]string, bool) {
	switch {
	case len(c.Command) > 0 && strings.HasSuffix(c.Command[0], "/spindle"):
		return append(c.Command[1:], c.Args...), true
	case len(c.Command) == 0 && strings.Contains(c.Image, "/spindle-lock/spindle:"):
		return c.Args, true
	}
	return nil, false
}
