package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// A namespace that enforces the Pod Security Standard "restricted" accepts all pods. It accepts the emulator's under
// "baseline", because the image of the emulator chooses its user.
func TestPodsMeetThePodSecurityStandard(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	for _, m := range all(t) {
		for _, w := range workloads(t, m) {
			level := api.LevelRestricted
			if emulates(w) {
				level = api.LevelBaseline
			}
			results := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &w.pod.ObjectMeta, &w.pod.Spec))
			assert.True(t, results.Allowed, "%s: %s", w.name, results.ForbiddenDetail())
		}
	}
}

func emulates(w workload) bool { return strings.HasSuffix(w.name, "/emulator") }

// No container can write to its image. Each has a memory limit and requests CPU time, but none has a CPU limit, because a
// holder that is throttled for longer than its lease loses its lock.
func TestContainersHaveLimits(t *testing.T) {
	for w, c := range everyContainer(t) {
		if emulates(w) {
			continue
		}
		where := w.name + "/" + c.Name
		require.NotNil(t, c.SecurityContext, where)
		require.NotNil(t, c.SecurityContext.ReadOnlyRootFilesystem, where)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, where)
		assert.Contains(t, c.Resources.Requests, core.ResourceCPU, where)
		assert.Contains(t, c.Resources.Limits, core.ResourceMemory, where)
		assert.NotContains(t, c.Resources.Limits, core.ResourceCPU, where)
	}
}
