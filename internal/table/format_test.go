package table_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A lease record that can't be read is not guessed at, whoever reads it. A newer version may have written anything except for
// the format number, and then the row must not be deleted.
func TestALeaseRowThatCanNotBeReadSaysSo(t *testing.T) {
	for says, newer := range map[string]bool{`{"v":2,"lease":"10s"}`: true, `{"v":2,"lease":{"min":"1s"}}`: true, `{"v":99}`: true,
		"": false, "{": false, `{"lease":""}`: false, `{"lease":"-1ns"}`: false, `{"lease":"0s"}`: false, `{"lease":"24h0m0.000000001s"}`: false, `{"with":"orders/member/0001_1763645616123456","for":"0s"}`: false} {
		tab, store, token := held(t, says)
		ctx, row := t.Context(), table.LeaseKey("m", token)
		check := func(err error) {
			t.Helper()
			require.ErrorContains(t, err, fmt.Sprintf("row %q", row))
			assert.Equal(t, newer, errors.Is(err, table.ErrNewer), says)
			for text, want := range map[string]bool{"update this program": newer, "stays taken": !newer, "delete the row": !newer} {
				assert.Equal(t, want, strings.Contains(err.Error(), text), "%q: %v", says, err)
			}
		}
		_, err := tab.LookAtLeases(ctx, time.Now(), "m")
		check(err)
		_, err = tab.Inspect(ctx, table.Observation{Name: "m", Token: token})
		check(err)
		l, err := operator.ListOne(ctx, tab, "m")
		require.NoError(t, err)
		assert.Equal(t, operator.Unreadable, l.State())
		assert.Equal(t, "holder", l.Holder())
		check(l.Unreadable)
		require.NoError(t, store.Commit(ctx, "operator", []table.Write{{Kind: table.Delete, Name: "m"}}))
		_, err = tab.LookAtLeases(ctx, time.Now(), "m")
		check(err)
	}
}

// A program of the first format reads the rows that this program writes, and this program reads rows without a format
// number.
func TestRowsSayTheirFormat(t *testing.T) {
	for _, lease := range []time.Duration{1, table.MaxLease} {
		tab, _, _ := held(t, fmt.Sprintf(`{"lease":%q}`, lease))
		seen, err := tab.LookAtLeases(t.Context(), time.Now(), "m")
		require.NoError(t, err)
		assert.Equal(t, lease, seen[0].LeaseRecord.Lease)
	}
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
