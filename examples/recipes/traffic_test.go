package recipes

import (
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/spindletest"
)

// Only the leader is ready and serves requests. Followers are live. The probes' paths are read from the manifest.
func TestOnlyTheLeaderIsReadyAndServes(t *testing.T) {
	needEmulator(t)
	manifest, err := os.ReadFile("../../deploy/kubernetes/service.yaml")
	require.NoError(t, err)
	probe := func(kind string) string {
		path := regexp.MustCompile(kind + `Probe:\s+httpGet: \{path: ([^,]+),`).FindSubmatch(manifest)
		require.NotNil(t, path)
		return string(path[1])
	}
	live, ready := probe("liveness"), probe("readiness")

	db := spindletest.New(t)
	first, stop := compete(t, db)
	firstURL := serve(t, Traffic(first, says("first")))
	elected(t, first)
	second, _ := compete(t, db)
	secondURL := serve(t, Traffic(second, says("second")))
	for path, leader := range map[string]int{live: http.StatusOK, ready: http.StatusOK, "/orders": http.StatusOK} {
		assert.Equal(t, leader, status(t, firstURL+path), path)
	}
	for path, follower := range map[string]int{live: http.StatusOK, ready: http.StatusServiceUnavailable, "/orders": http.StatusServiceUnavailable} {
		assert.Equal(t, follower, status(t, secondURL+path), path)
	}

	resp, err := http.Get(secondURL + "/orders")
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, "1", resp.Header.Get("Retry-After"), "a client tries again")

	stop()
	assert.Equal(t, http.StatusServiceUnavailable, status(t, firstURL+ready))
	assert.Equal(t, http.StatusServiceUnavailable, status(t, firstURL+"/orders"), "a process that lost the lock does not serve requests, even if its last probe succeeded")
	elected(t, second)
	assert.Equal(t, http.StatusOK, status(t, secondURL+ready))
	_, body := get(t, secondURL+"/orders")
	assert.Equal(t, "second", body)
}
