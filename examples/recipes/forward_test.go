package recipes

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// replica is a candidate with an HTTP server, whose URL it publishes.
func replica(t *testing.T, db *spindletest.Database, name string, patience time.Duration) (lock *spindle.Lock, url string) {
	t.Helper()
	var forward http.Handler
	url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward.ServeHTTP(w, r) }))
	lock = spindle.New(connect(t, db), db.Table, "mylock", append(options, spindle.WithValue(url))...)
	forward = Forward(lock, patience, says(name))
	return lock, url
}

// The leader serves the requests that are sent to a follower. After a change of leader, the new leader serves them.
// Requests are never forwarded in a loop.
func TestAFollowerForwardsToWhoLeads(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	first, firstURL := replica(t, db, "first", time.Hour)
	second, secondURL := replica(t, db, "second", time.Hour)
	stop := run(t, first)
	elected(t, first)
	run(t, second)
	for _, url := range []string{firstURL, secondURL} {
		_, by := get(t, url)
		assert.Equal(t, "first", by)
	}

	resp, _ := get(t, secondURL, forwarded)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "a follower does not forward a request again")
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))

	stop()
	resp, _ = get(t, firstURL, forwarded)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "a former leader refuses forwarded requests immediately")
	var by string
	for resp.StatusCode == http.StatusServiceUnavailable { // until the follower has seen that the leader has left
		resp, by = get(t, secondURL)
	}
	assert.Equal(t, "second", by, "the request waits for the next leader")
}

// If there is no leader for a while, the response is 503 with a Retry-After header.
func TestNobodyToForwardTo(t *testing.T) {
	needEmulator(t)
	_, url := replica(t, spindletest.New(t), "alone", time.Millisecond)
	resp, _ := get(t, url)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
}
