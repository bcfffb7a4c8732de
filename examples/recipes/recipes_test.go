package recipes

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// options make locks that are not lost even on a slow machine, and that followers claim soon after a release.
var options = []spindle.Option{spindle.WithLease(30 * time.Second), spindle.WithPoll(50 * time.Millisecond), quiet}

func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
}

// connect opens a separate client on db, because the emulator confuses concurrent transactions of the same client.
func connect(t *testing.T, db *spindletest.Database) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, db.ClientOptions()...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// compete runs a lock until the test ends or stop is called.
func compete(t *testing.T, db *spindletest.Database, opts ...spindle.Option) (lock *spindle.Lock, stop func()) {
	t.Helper()
	lock = spindle.New(connect(t, db), db.Table, "mylock", append(opts, options...)...)
	return lock, run(t, lock)
}

// run runs a lock or a group.
func run(t *testing.T, it interface {
	Run(context.Context, ...chan<- error) error
}) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	require.NoError(t, it.Run(ctx, done))
	stop = sync.OnceFunc(func() { cancel(); assert.NoError(t, <-done) })
	t.Cleanup(stop)
	return stop
}

func elected(t *testing.T, lock *spindle.Lock) spindle.Token {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	token, err := lock.WaitElected(ctx)
	require.NoError(t, err)
	return token
}

func serve(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// says returns a handler that responds with text.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	for _, h := range header {
		r.Header.Set(h, "1")
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func status(t *testing.T, url string) int {
	t.Helper()
	resp, _ := get(t, url)
	return resp.StatusCode
}
