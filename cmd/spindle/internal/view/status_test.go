package view

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Status succeeds only if it has read that each of the locks is held: a lock of a newer version, which it can't read, is a
// failure, both alone and with --expect. A lock without a holder counts more, because the exit code says so.
func TestStatusFailsForALockThatItCanNotRead(t *testing.T) {
	store := &memstore.Store{}
	now := time.Now().Truncate(time.Microsecond)
	token := now.Add(-time.Second)
	for name, record := range map[string]string{"held": `{"lease":"1h"}`, "newer": `{"v":99}`} {
		require.NoError(t, store.Commit(t.Context(), "test", []table.Write{
			{Name: name, Set: []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColHeartbeat, Value: now}, {Column: table.ColWriter, Value: "web-1"}}},
			{Name: table.LeaseKey(name, table.TokenAt(token)), Set: []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: record}}},
		}))
	}
	for _, c := range []struct {
		names []string
		code  int // of terminal.Exit, 0 for success, or -1 for any other error
	}{
		{[]string{"held"}, 0}, {[]string{"newer"}, -1}, {[]string{"free"}, terminal.StatusFree}, {[]string{"held", "newer"}, -1}, {[]string{"newer", "held"}, -1},
		{[]string{"held", "free"}, terminal.StatusFree}, {[]string{"newer", "free"}, terminal.StatusFree},
	} {
		code := func(err error) int {
			var e *terminal.Exit
			switch {
			case err == nil:
				return 0
			case errors.As(err, &e):
				return e.Code
			}
			return -1
		}
		tab, a := table.Table{Store: store}, answer{quiet: true}
		assert.Equal(t, c.code, code(a.run(t.Context(), tab, false, c.names)), "--expect %v", c.names)
		if len(c.names) == 1 {
			assert.Equal(t, c.code, code(a.run(t.Context(), tab, true, c.names)), c.names)
		}
	}
}
