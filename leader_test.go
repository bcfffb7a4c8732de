package spindle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func TestNobodyLeadsOnceTheLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := elect.Candidate{Table: table.Table{Store: store}, Clock: elect.SystemClock{}, Names: []string{"m"}, ID: "holder", LeaseRecord: table.LeaseRecord{Lease: 10 * time.Second}}
		term := holder.Try(t.Context(), elect.All, time.Second).Term
		require.NotNil(t, term)
		defer term.End(nil)
		l := New(nil, "locktable", "m", options.Option(func(c *options.Config) { c.Store = store }))
		for range 2 { // the first look reads the leader's lease record, and the second one knows it
			leader, err := l.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "holder", leader.ID)
			time.Sleep(9 * time.Second / 2)
		}
		time.Sleep(time.Second + time.Millisecond)
		_, err := l.Leader(t.Context())
		assert.ErrorIs(t, err, ErrNoLeader, "it has crashed: its row is still there")
	})
}
