package group

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// A newer version may hold its rows by different rules, so members of this version neither evict it nor claim its
// partitions, and continue to work.
func TestWhatANewerVersionHasIsLeftToIt(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(8)
		rows := c.store.Rows()
		var theirs []string
		for name := range rows {
			if member, is := table.MemberOf(name); is && rows[member.Name].Writer == "a" {
				theirs = append(theirs, name)
			}
		}
		require.Len(t, theirs, 1)
		for name, row := range rows {
			if strings.Contains(row.Writer, `"with":"`+theirs[0]+`"`) {
				theirs = append(theirs, name)
			}
		}
		require.Len(t, theirs, 5, "the member's, and those of its partitions")
		for _, name := range theirs {
			require.NoError(t, c.store.Commit(t.Context(), "newer", []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColWriter, Value: `{"v":2}`}}}}))
		}
		a.kill()
		c.sleep(100 * lease)
		for _, name := range theirs {
			assert.Equal(t, `{"v":2}`, c.store.Rows()[name].Writer, name)
		}
		assert.Equal(t, 4, b.has(), "it works on what it has")
		assert.NoError(t, b.Health())
		assert.Equal(t, 1, strings.Count(b.log.String(), "written by a newer version"), b.log.String())
	})
}
