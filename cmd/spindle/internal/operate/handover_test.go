package operate

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/internal/table"
)

// A request is sent only to a holder of the term that is meant. Otherwise the exit code tells a script why, and nothing was sent.
func TestOnlyAHolderOfTheTermThatIsMeantIsAskedForAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, all := everyState(t)
		for name, want := range map[string]struct{ right, wrong string }{
			"held":                    {"", "3: no request was sent: %[2]d is not the current token of held, which held's holder holds under token %[1]d"},
			"leaving":                 {"", "3: no request was sent: %[2]d is not the current token of leaving, which leaving's holder holds under token %[1]d"},
			"free":                    {"3: no request was sent: no process holds free", "3: no request was sent: no process holds free"},
			"released":                {"3: no request was sent: no process holds released", "3: no request was sent: no process holds released"},
			"expired":                 {"3: no request was sent: no process holds expired", "3: no request was sent: no process holds expired"},
			"unconfirmed":             {"3: no request was sent: no process holds unconfirmed", "3: no request was sent: no process holds unconfirmed"},
			"orphaned":                {"3: no request was sent: no process holds orphaned", "3: no request was sent: no process holds orphaned"},
			"orders/partition/paused": {"3: no request was sent: no process holds orders/partition/paused", "3: no request was sent: no process holds"},
			"orders/member/0007":      {"3: no request was sent: no process holds orders/member/0007", "3: no request was sent: no process holds"},
			"orders/member/0000":      {"4: no request was sent: orders/member/0000 belongs to a group", "4: no request was sent: orders/member/0000 belongs to a group"},
			"orders/partition/taken":  {"4: no request was sent: orders/partition/taken belongs to a group", "4: no request was sent: orders/partition/taken belongs to a group"},
			"newer":                   {"1: newer version", "1: newer version"},
			"garbled":                 {"1: lease row", "1: lease row"},
		} {
			l := all[name]
			for token, says := range map[table.Token]string{0: want.right, l.Token: want.right, l.Token + 1: want.wrong, max(l.Token, 2) - 1: want.wrong} {
				h := &handover{Database: &database.Database{Timeout: timeout}, name: name, token: int64(token)}
				found, err := h.holder(t.Context(), tab)
				if says == "" {
					require.NoError(t, err, "%s, %v", name, token)
					assert.Equal(t, []any{l.Token, lease}, []any{found.Token, found.LeaseRecord.Lease})
					continue
				}
				if says == want.wrong {
					says = fmt.Sprintf(says+"%.0[1]s", l.Token, token)
				}
				endsWith(t, err, says, "%s, %v", name, token)
			}
		}
	})
}

// A database that does not answer keeps a handover no longer than --timeout, and an interruption ends it at once.
func TestAHandoverWaitsForTheDatabaseAsLongAsItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, _ := everyState(t)
		hangs := slow(tab.Store, func(int) time.Duration { return time.Hour })
		h := &handover{Database: &database.Database{Timeout: timeout}, name: "held"}
		began := time.Now()
		_, err := h.holder(t.Context(), hangs)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, timeout, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = h.holder(ctx, hangs)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// A handover is printed with who had the lock and who has it now, and with names that can't act on a terminal.
func TestAHandoverIsPrintedWithBothHolders(t *testing.T) {
	done := spindle.Handover{From: spindle.Leader{ID: "first\x1b"}, To: spindle.Leader{ID: "second", Token: 1763645616123456}, Gap: 1234567 * time.Microsecond}
	for format, want := range map[string]string{
		"table": "job was handed over\n  from $'first\\x1b'\n  to   second, token 1763645616123456\n  without a holder for at most 1.235s\n",
		"json":  `{"name":"job","from":"first\u001b","to":"second","token":"1763645616123456","gap_seconds":1.234567}` + "\n",
	} {
		out, said, err := prints(t, func() error { return (&handover{name: "job", f: formatted(t, format)}).print(done) })
		require.NoError(t, err)
		assert.Equal(t, want, out)
		assert.Empty(t, said)
	}
}
