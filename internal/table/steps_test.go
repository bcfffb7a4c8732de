package table_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

var hold, join, take, drop = steps.Hold, steps.Join, steps.Take, steps.Drop

// look reads the locks and their lease rows, as a candidate does.
func look(t testing.TB, tab table.Table, names ...string) []table.Observation {
	t.Helper()
	seen, err := tab.LookAtLeases(t.Context(), time.Now(), names...)
	require.NoError(t, err)
	return seen
}
