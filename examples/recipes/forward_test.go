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

// replica is a candidate that serves at the URL that it publishes.
func replica(t *testing.T, db *spindletest.Database, name string, patience time.Duration) (lock *spindle.Lock, url string) {
	t.Helper()
	var forward http.Handler
	url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward.ServeHTTP(w, r) }))
	lock = spindle.New(connect(t, db), db.Table, "mylock", append(options, spindle.WithValue(url))...)
	forward = Forward(lock, patience, says(name))
	return lock, url
}

// A request to a follower is served by the leader. After a change of leader, it is served by the new leader, and it is
// never forwarded in a circle.
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
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "forwarded to a follower: it does not send it on")
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))

	stop()
	resp, _ = get(t, firstURL, forwarded)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "forwarded to who leads no more: it is refused at once")
	var by string
	for resp.StatusCode == http.StatusServiceUnavailable { // until the follower has seen that the leader has left
		resp, by = get(t, secondURL)
	}
	assert.Equal(t, "second", by, "then the request waits for the next")
}

// If there is no leader, the response after a while is 503, and says when to try again.
func TestNobodyToForwardTo(t *testing.T) {
	needEmulator(t)
	_, url := replica(t, spindletest.New(t), "alone", time.Millisecond)
	resp, _ := get(t, url)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
}
