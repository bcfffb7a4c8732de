package table_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// future contains lease rows of newer versions, which can contain anything except for the format number.
var future = []string{`{"v":2,"lease":"10s"}`, `{"v":2,"lease":{"min":"1s"}}`, `{"v":99}`}

func TestALeaseRowOfANewerVersionSaysSo(t *testing.T) {
	for _, says := range future {
		tab, store, token := held(t, says)
		ctx := t.Context()
		requireNewer := func(err error, row string) {
			t.Helper()
			require.ErrorIs(t, err, table.ErrNewer, "%q", says)
			require.ErrorContains(t, err, "row \""+row+"\" was written by a newer version of spindle")
			require.ErrorContains(t, err, "update this program")
			require.NotContains(t, err.Error(), "delete the row")
		}
		row := table.LeaseKey("m", token)
		_, err := tab.LookAtLeases(ctx, time.Now(), "m")
		requireNewer(err, row)
		_, err = tab.Inspect(ctx, table.Observation{Name: "m", Token: token})
		requireNewer(err, row)
		l, err := operator.ListOne(ctx, tab, "m")
		require.NoError(t, err)
		assert.Equal(t, operator.Unreadable, l.State())
		assert.Equal(t, "holder", l.Holder())
		requireNewer(l.Unreadable, row)
		require.NoError(t, store.Commit(ctx, "operator", []table.Write{{Kind: table.Delete, Name: "m"}}))
		_, err = tab.LookAtLeases(ctx, time.Now(), "m")
		requireNewer(err, row)
	}
}

func TestARecordOfANewerVersionSaysSo(t *testing.T) {
	store := &memstore.Store{}
	tab := table.Table{Store: store}
	require.NoError(t, store.Commit(t.Context(), "newer", []table.Write{{Kind: table.Put, Name: "m!done", Set: []table.Cell{{Column: table.ColWriter, Value: `{"v":2,"done":["1","2"]}`}}}}))
	_, _, err := tab.Done(t.Context(), table.Strong, "m")
	assert.ErrorIs(t, err, table.ErrNewer)
	assert.ErrorIs(t, err, table.ErrGarbled, "it is not known, and that does not go away")
	assert.ErrorContains(t, err, "update this program")
	l, err := operator.ListOne(t.Context(), tab, "m")
	require.NoError(t, err)
	assert.ErrorIs(t, l.Undone, table.ErrNewer)
}

// A program of the first format reads the rows that this program writes, and this program reads rows without a format
// number.
func TestRowsSayTheirFormat(t *testing.T) {
	tab, store, token := held(t, `{"lease":"10s"}`)
	seen, err := tab.LookAtLeases(t.Context(), time.Now(), "m")
	require.NoError(t, err)
	assert.Equal(t, 10*time.Second, seen[0].LeaseRecord.Lease)
	require.NoError(t, tab.Finish(t.Context(), token, 0, "m", table.Due{Key: "42"}, "me"))
	assert.JSONEq(t, `{"v":1,"done":"42","by":"me"}`, store.Rows()["m!done"].Writer)
	seen, err = tab.Observe(t.Context(), "m")
	require.NoError(t, err)
	token, err = tab.Claim(t.Context(), "me", seen...)
	require.NoError(t, err)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Minute}, "m"))
	assert.JSONEq(t, `{"v":1,"lease":"1m0s"}`, store.Rows()[table.LeaseKey("m", token)].Writer)
}
