package recipes

import (
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
)

// Each lock gets the options. One that is wrong is reported by each.
func TestLocksHaveOptionsInCommon(t *testing.T) {
	leader, imports := Locks(&spanner.Client{}, time.Minute, slog.Default())
	assert.NoError(t, leader.Err())
	assert.NoError(t, imports.Err())
	assert.Equal(t, time.Minute, leader.Settings().Lease)
	leader, imports = Locks(&spanner.Client{}, -1, slog.Default())
	assert.ErrorContains(t, leader.Err(), "WithLease")
	assert.ErrorContains(t, imports.Err(), "WithLease")
}
