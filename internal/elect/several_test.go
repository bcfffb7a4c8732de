package elect

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// What becomes of a claim of several locks becomes of each of them: all are held, or all are free again, and their former holders are
// forgotten. One that was left behind would have no holder for a lease, or make the candidate wait for a holder that is gone.
func TestWhatBecomesOfAClaimBecomesOfEachOfItsLocks(t *testing.T) {
	names := []string{"a", "b", "c"}
	for how, spoil := range map[string]func(*memstore.Link){
		"won":                  func(*memstore.Link) {},
		"refused":              func(l *memstore.Link) { l.Refuse(refusingStep("confirm", errRefused)) },
		"confirmation is lost": func(l *memstore.Link) { l.Lose(func(step string) bool { return step == "confirm" }, nil) },
		"nothing is known": func(l *memstore.Link) {
			l.Lose(func(step string) bool { return step == "heartbeat" }, func(step string) bool { return step == "confirm" })
		},
		"the claim's reply is lost": func(l *memstore.Link) { l.Lose(nil, memstore.Once("claim")) },
	} {
		for _, free := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				what := fmt.Sprintf("%s, free rows %v", how, free)
				link := &memstore.Link{Store: &memstore.Store{}}
				holder := candidate("holder", link.Store, names...)
				holder.LeaseRecord.Lease = time.Hour
				term := holder.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				c := candidate("c", link, names...)
				c.FreeRows = free
				require.Positive(t, c.Try(t.Context(), All, lease/3).Seen[2].FreeIn)
				term.End(nil)
				time.Sleep(time.Hour + time.Millisecond)

				spoil(link)
				step := c.Try(t.Context(), All, lease/3)
				require.Equal(t, how == "won", step.Term != nil, "%s: %v", what, step.Err)
				link.Mend()
				link.Refuse(nil)
				if how == "the claim's reply is lost" {
					require.True(t, c.Try(t.Context(), All, lease/3).CoolingDown, what)
				}
				rows := link.Store.(*memstore.Store).Rows()
				var gone []table.Write
				for _, name := range names {
					row := rows[name]
					assert.Equal(t, how == "won", !row.Heartbeat.IsZero(), "%s: %s", what, name)
					gone = append(gone, table.Write{Kind: table.Delete, Name: name}, table.Write{Kind: table.Delete, Name: table.LeaseKey(name, table.TokenAt(row.Token))})
				}
				assert.Len(t, rows, map[bool]int{true: 6, false: 3}[how == "won"], what)
				if step.Term != nil {
					step.Term.End(nil)
					require.NoError(t, link.Commit(t.Context(), "by hand", gone))
				}
				seen, err := c.Look(t.Context())
				require.NoError(t, err)
				for _, s := range seen {
					if how == "won" {
						assert.LessOrEqual(t, s.FreeIn, time.Duration(0), "%s: %s's former holder is gone", what, s.Name)
						assert.Equal(t, lease, c.observer.history(s.Name).pace, s.Name)
					} else {
						assert.Positive(t, s.FreeIn, "%s: it leaves %s to others", what, s.Name)
						assert.LessOrEqual(t, s.FreeIn, lease, what)
					}
				}
			})
		}
	}
}
