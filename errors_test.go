//go:build unix

package spindle_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/spindletest"
)

// If the client is closed while a lock uses it, the error says so, and does not blame the table.
func TestAClientThatWasClosedEarlyIsSaidToBe(t *testing.T) {
	db := spindletest.New(t)
	client := connect(t, db)
	var log fleet.Log
	l := stand(t, client, db, spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	eventually(t, 10*time.Second, "election", l.has)
	client.Close()
	_, err := l.Leader(t.Context())
	assert.ErrorContains(t, err, "the Spanner client was closed")
	eventually(t, 10*time.Second, "it to be logged too", func() bool {
		return strings.Contains(log.String(), "can't compete") && strings.Contains(log.String(), "the Spanner client was closed")
	})
	assert.NotContains(t, log.String(), "it is a lock table")
}

// A database that does not exist is not mistaken for a table that does not exist.
func TestAPathOfNoDatabaseIsSaidToBeWrong(t *testing.T) {
	db := spindletest.New(t)
	instance, _, _ := strings.Cut(db.Path, "/databases/")
	for _, path := range []string{instance + "/databases/other", "projects/p/instances/i/databases/d"} {
		client, err := spanner.NewClientWithConfig(t.Context(), path, spanner.ClientConfig{DisableNativeMetrics: true}, db.ClientOptions()...)
		require.NoError(t, err)
		defer client.Close()
		_, err = spindle.New(client, db.Table, "mylock").Leader(t.Context())
		assert.ErrorContains(t, err, "check the database path that was given to the Spanner client")
		assert.NotContains(t, err.Error(), "table exist")
	}
}
