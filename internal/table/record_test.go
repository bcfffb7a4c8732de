package table_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A done row that can't be read does not count as missing, because the work would be done again.
func TestARecordThatCanNotBeReadIsNotTakenForNone(t *testing.T) {
	for _, says := range []string{"", "42", "{", "{}", "[]", "null", `""`, `{"done":""}`, `{"done":null}`, `{"done":42}`, `{"by":"host-1"}`,
		`{"done":"v1","period":"a day"}`, `{"done":"v1","period":7}`, `{"v":2,"done":["1","2"]}`} {
		tab := table.Table{Store: &memstore.Store{}}
		token := hold(t, tab, "nightly", time.Minute)
		require.NoError(t, tab.Finish(t.Context(), token, 0, "nightly", table.Due{Key: "42"}, "host-1"))
		done, _, err := tab.Done(t.Context(), table.Strong, "nightly")
		require.NoError(t, err)
		require.Equal(t, "42", done.Key)
		require.NoError(t, tab.Store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Update, Name: "nightly!done", Set: []table.Cell{{Column: table.ColWriter, Value: says}}}}))
		_, _, err = tab.Done(t.Context(), table.Strong, "nightly")
		assert.ErrorIs(t, err, table.ErrGarbled, "%q", says)
		assert.Equal(t, strings.Contains(says, `"v":2`), errors.Is(err, table.ErrNewer), "%q", says)
		one, err := operator.ListOne(t.Context(), tab, "nightly")
		require.NoError(t, err)
		assert.ErrorIs(t, one.Undone, table.ErrGarbled, "%q", says)
	}
}

// Keys are compared by their bytes. Only for ticks, which are UTC times in a fixed format, is this also the order of
// time. Other keys that look like times are never compared with ticks, because ticks would be skipped.
func TestOnlyTicksAreComparedWithTicks(t *testing.T) {
	const tick, next = "2026-11-21T02:00:00Z", "2026-11-21T03:00:00Z"
	for _, is := range []struct {
		done, key string
		why       error
	}{{tick, tick, table.ErrDone}, {next, tick, table.ErrPassed}, {tick, next, nil}, {"41", "42", nil}, {"42", "41", table.ErrPassed}, {"2026-11-21", "2026-11-20", table.ErrPassed}} {
		assert.ErrorIs(t, recorded(is.done).Forbids(table.Due{Key: is.key}), is.why, "%s after %s", is.key, is.done)
	}
	for _, other := range []string{"2026-11-21T03:00:00+01:00", "2026-11-21T02:00:00+00:00", "2026-11-21T02:00:00-00:00", "2026-11-21T02:00:00.0Z",
		"2026-11-21t02:00:00z", "2026-11-21T02:00Z", "2026-11-21 02:00:00Z", "2026-11-21", "42", "again"} {
		assert.ErrorIs(t, recorded(tick).Forbids(table.Due{Key: other}), table.ErrUnordered, other)
		assert.ErrorIs(t, recorded(other).Forbids(table.Due{Key: tick}), table.ErrUnordered, other)
	}
}

func recorded(key string) table.Done { return table.Done{Due: table.Due{Key: key}} }
