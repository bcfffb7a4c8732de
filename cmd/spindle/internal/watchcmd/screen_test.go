package watchcmd

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// counting counts the reads of a store.
type counting struct {
	table.Store
	reads int
}

func (c *counting) Read(ctx context.Context, tag string, b table.Bound, k table.Keys) ([]table.Row, time.Time, error) {
	c.reads++
	return c.Store.Read(ctx, tag, b, k)
}

// The screen looks up what became of a few locks, but not of many: a read costs the same however many end.
func TestTheScreenLooksUpFewLocksThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: &memstore.Store{}}
		s := &screen{watching: &watching{Database: &connect.Database{}}, on: table.Table{Store: store}}
		tokens := map[string]table.Token{}
		for i := range 100 {
			name := fmt.Sprintf("order-%02d", i)
			seen, err := s.on.Observe(t.Context(), name)
			require.NoError(t, err)
			tokens[name], err = s.on.Claim(t.Context(), "web-1", seen...)
			require.NoError(t, err)
			require.NoError(t, s.on.Confirm(t.Context(), tokens[name], table.LeaseRecord{Lease: time.Hour}, name))
		}
		read := func() (rows int, texts []string, reads int) {
			before := store.reads
			shot, err := s.read(t.Context())
			require.NoError(t, err)
			for _, c := range shot.Changes {
				texts = append(texts, c.Label+" "+c.Text)
			}
			return len(shot.Rows), texts, store.reads - before
		}
		rows, texts, once := read()
		assert.Equal(t, 100, rows)
		assert.Empty(t, texts, "what is there at first is no change")

		time.Sleep(time.Second)
		require.NoError(t, s.on.Release(t.Context(), tokens["order-00"], "order-00"))
		rows, texts, reads := read()
		assert.Equal(t, 100, rows, "with the one that was released")
		assert.Equal(t, []string{"order-00 released"}, texts)
		assert.Equal(t, once+1, reads)
		rows, texts, reads = read()
		assert.Equal(t, 99, rows)
		assert.Empty(t, texts)
		assert.Equal(t, once, reads)

		time.Sleep(time.Second)
		delete(tokens, "order-00")
		for name, token := range tokens {
			require.NoError(t, s.on.Release(t.Context(), token, name))
		}
		rows, texts, reads = read()
		assert.Zero(t, rows)
		assert.Len(t, texts, 99)
		assert.Equal(t, "order-01 released, or its row was pruned or deleted", texts[0])
		assert.Equal(t, once, reads)
		found, err := s.released(t.Context())
		require.NoError(t, err)
		assert.Len(t, found.Rows, 100)
	})
}

// An error that may pass does not end the screen, however it was explained.
func TestOnlyAMistakeEndsTheScreen(t *testing.T) {
	o := &connect.Database{}
	assert.False(t, mistaken(o.Explain(commandtest.Away)))
	assert.False(t, mistaken(o.Explain(fmt.Errorf("read: %w", context.DeadlineExceeded))))
	assert.True(t, mistaken(o.Explain(fmt.Errorf("no such table"))))
}

// A group is one row, and its members and partitions are what Enter shows. They are rows if only the group is watched.
func TestAGroupOnTheScreenIsOneRow(t *testing.T) {
	a, b := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103)), commandtest.MemberOf(1, "b", commandtest.At(101), commandtest.At(98))
	b.At = commandtest.At(103)
	_, groups := describe.Gather([]operator.Listing{a, b, commandtest.MemberOf(2, "", commandtest.At(50), time.Time{}), commandtest.PartitionWith(a, "17", commandtest.At(102)), commandtest.FreeSince("orders/partition/18", commandtest.At(102))}, "")
	all := (&screen{watching: &watching{}}).rows(look{groups: groups})
	require.Len(t, all, 1)
	assert.Equal(t, states.Partial, all[0].State)
	assert.Equal(t, "2 members, 2 partitions, 1 without a holder", all[0].Note)
	text := all[0].Detail(80)
	assert.Contains(t, text, "orders/ is partial: 2 members, 2 partitions, 1 without a holder\n\nSLOT ")
	assert.Regexp(t, "\n0000 +held .* 1 +a\n  17\n", text)
	assert.Regexp(t, "\n18 +released", text)
	only := (&screen{watching: &watching{group: "orders"}}).rows(look{groups: groups})
	assert.Len(t, only, 3)
	assert.Equal(t, "orders/member/0000", only[1].Name)
}

// A row has what ls shows, as of the read.
func TestARowOfTheScreenIsOfItsRead(t *testing.T) {
	l := commandtest.Held("nightly", "web\n7", commandtest.At(100), commandtest.At(103), 10*time.Second)
	l.At = commandtest.At(107)
	r := lockRow(l)
	assert.Equal(t, []any{"nightly", operator.Held, `$'web\n7'`, "7.0s", 6 * time.Second, "6.0s"}, []any{r.Label, r.State, r.Holder, r.Since, r.Left, r.Ends})
	assert.Equal(t, describe.Sentence(l), r.Detail(80))
	l.At = commandtest.At(115)
	r = lockRow(l)
	assert.Equal(t, []any{operator.Expired, "2.0s"}, []any{r.State, r.Ends})
	r = lockRow(commandtest.FreeSince("nightly", commandtest.At(100)))
	assert.Equal(t, operator.Released, r.State)
	assert.Zero(t, r.Token, "it is no term's")
}
