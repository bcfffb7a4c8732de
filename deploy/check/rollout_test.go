package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// An update to an image that can't be pulled, or that exits, leaves enough old pods running: all of them, or the one that
// works if only this one is ever ready.
func TestABadImageLeavesTheOldPodsRunning(t *testing.T) {
	for _, w := range replicated(t) {
		require.NotEmpty(t, w.serving(), "%s: without a readiness probe, a pod counts as ready once its containers run", w.name)
		assert.GreaterOrEqual(t, w.minReady, int32(15), "%s: a pod that soon exits must not count as available", w.name)
		stays := w.canBeReady() - w.maxUnavailable
		switch {
		case w.canBeReady() == 1:
			assert.Equal(t, w.replicas-1, w.maxUnavailable, "%s: with less, an update would wait forever; with more, it would stop the pod that works", w.name)
		case strings.HasPrefix(w.name, "group.yaml/"):
			assert.Equal(t, w.replicas-1, stays, w.name)
		default:
			assert.Equal(t, w.replicas, stays, w.name)
		}
	}
}

// A drain can stop a pod of every workload: at once if all pods run, and also if no pod is ready.
func TestADrainIsNotBlocked(t *testing.T) {
	for _, w := range replicated(t) {
		budgets := of[*policy.PodDisruptionBudget](w.in)
		if w.canBeReady() == 1 {
			assert.Empty(t, budgets, "%s: a budget would protect the only ready pod", w.name)
			continue
		}
		require.Len(t, budgets, 1, w.name)
		b := budgets[0].Spec
		require.True(t, w.selectedBy(t, b.Selector), w.name)
		require.NotNil(t, b.UnhealthyPodEvictionPolicy, w.name)
		assert.Equal(t, policy.AlwaysAllow, *b.UnhealthyPodEvictionPolicy, w.name)
		require.NotNil(t, b.MaxUnavailable, w.name)
		n, err := intstr.GetScaledValueFromIntOrPercent(b.MaxUnavailable, w.replicas, true)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "%s: one pod at a time", w.name)
	}
}

// Before a pod is killed, its preStop hook ends, it announces for a third of the lease that it is leaving, and its work
// has time to stop.
func TestTheGracePeriodIsLongEnough(t *testing.T) {
	const work = 5 * time.Second
	hooks := 0
	for _, w := range replicated(t) {
		grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
		for _, c := range w.containers() {
			need := lease(t, c)/3 + work
			if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
				hooks++
				need = work + preStop(t, *c.Lifecycle.PreStop)
			}
			assert.GreaterOrEqual(t, grace, need, "%s/%s", w.name, c.Name)
		}
	}
	assert.Equal(t, 2, hooks)
}

func lease(t *testing.T, c core.Container) time.Duration {
	for _, e := range c.Env {
		if e.Name == "SPINDLE_LEASE" {
			d, err := time.ParseDuration(e.Value)
			require.NoError(t, err)
			return d
		}
	}
	return 10 * time.Second
}

// preStop returns how long a hook may take.
func preStop(t *testing.T, h core.LifecycleHandler) time.Duration {
	if h.Sleep != nil {
		return time.Duration(h.Sleep.Seconds)*time.Second + 10*time.Second/3 // the handover comes afterwards
	}
	require.NotNil(t, h.Exec)
	within := slices.Index(h.Exec.Command, "--within")
	require.Positive(t, within, h.Exec.Command)
	d, err := time.ParseDuration(h.Exec.Command[within+1])
	require.NoError(t, err)
	return d
}

// A liveness probe does not restart spindle while it gives up a lock, for which it may need a lease.
func TestLivenessProbesOutlastALease(t *testing.T) {
	for w, c := range everyContainer(t) {
		if p := c.LivenessProbe; p != nil {
			assert.Greater(t, time.Duration(p.PeriodSeconds*p.FailureThreshold)*time.Second, lease(t, c), "%s/%s", w.name, c.Name)
		}
	}
}
