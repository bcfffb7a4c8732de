package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

const lease = 30 * time.Second

// everyState is a table with a lock, a member and a partition in each state. It returns their listings, by name.
func everyState(t *testing.T) (table.Table, map[string]operator.Listing) {
	tab := table.Table{Store: &memstore.Store{}}
	hold := func(name string) table.Token {
		token := steps.Claim(t, tab, name)
		require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease, ID: name + "'s holder"}, name))
		return token
	}
	rewrite := func(name, record string) {
		require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Update, Name: table.LeaseKey(name, hold(name)),
			Set: []table.Cell{{Column: table.ColWriter, Value: record}}}}))
	}
	hold("expired")
	dead := steps.Join(t, tab, 7, "dead", lease)
	steps.Take(t, tab, dead, lease, "of-dead")
	time.Sleep(lease)
	require.NoError(t, tab.Release(t.Context(), hold("released"), "released"))
	steps.Claim(t, tab, "unconfirmed")
	hold("orphaned")
	steps.Drop(t, tab, "orphaned")
	rewrite("newer", `{"v":99,"lease":"30s"}`)
	rewrite("garbled", `?`)
	require.NoError(t, tab.Announce(t.Context(), hold("leaving"), "leaving"))
	hold("held")
	m := steps.Join(t, tab, 0, "one", lease)
	given := steps.Take(t, tab, m, lease, "given")
	steps.Take(t, tab, m, lease, "taken") // later than its member
	paused := table.LeaseRef{Name: table.PartitionName("orders", "paused"), Token: steps.Take(t, tab, m, lease, "paused")}
	require.NoError(t, tab.ReleasePartitions(t.Context(), paused))
	_, err := tab.MarkPaused(t.Context(), m, func(table.LeaseRef) bool { return false }, paused.Name)
	require.NoError(t, err)
	orphan := steps.Join(t, tab, 1, "two", lease)
	steps.Take(t, tab, orphan, lease, "adrift")
	steps.Drop(t, tab, orphan.Name, orphan.Key())
	require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: table.PartitionName("orders", "given"), Token: given}))
	all := map[string]operator.Listing{}
	for name, state := range map[string]operator.State{
		"free": operator.Free, "released": operator.Released, "unconfirmed": operator.Unconfirmed, "orphaned": operator.Orphaned,
		"newer": operator.Unreadable, "garbled": operator.Unreadable, "expired": operator.Expired, "leaving": operator.Leaving, "held": operator.Held,
		m.Name: operator.Held, dead.Name: operator.Expired,
		"orders/partition/given": operator.Released, "orders/partition/paused": operator.Paused, "orders/partition/taken": operator.Held, "orders/partition/of-dead": operator.Expired, "orders/partition/adrift": operator.Orphaned,
	} {
		l, err := model.OneLock(t.Context(), tab, name)
		require.NoError(t, err)
		require.Equal(t, state, l.State(), name)
		all[name] = l
	}
	return tab, all
}

// endsWith checks the exit code and the text of an error. What it should be begins with the code, of one digit, and a colon.
func endsWith(t *testing.T, err error, want string, about ...any) {
	t.Helper()
	require.Error(t, err, about...)
	code := terminal.Failed
	var exit *terminal.Exit
	if errors.As(err, &exit) {
		code = exit.Code
	}
	assert.Equal(t, want[:3], fmt.Sprint(code, ": "), about...)
	assert.Contains(t, err.Error(), want[3:], about...)
}

// An operator can release what the token shows to be the term that is meant, and nothing else: neither the term of a later holder, nor
// what has no holder, nor a single partition. A command line that can't be right has its own exit code.
func TestOnlyTheTermThatIsMeantCanBeReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yes = ""
		_, all := everyState(t)
		for name, want := range map[string]struct{ right, wrong, none string }{
			"free":                     {"1: because free is free", "1: because free is free", "1: because free is free"},
			"released":                 {"1: because released is free", "1: because released is free", "1: because released is free"},
			"orders/partition/given":   {"1: because orders/partition/given is free", "1: because orders/partition/given is free", "1: because orders/partition/given is free"},
			"orders/partition/paused":  {"1: because orders/partition/paused is paused", "1: because orders/partition/paused is paused", "1: because orders/partition/paused is paused"},
			"held":                     {yes, "1: is not the current token of held\n  held is held by", "2: no token given for \"held\""},
			"leaving":                  {yes, "1: is not the current token of leaving", "2: no token given"},
			"expired":                  {yes, "1: is not the current token of expired", "2: no token given"},
			"garbled":                  {yes, "1: is not the current token of garbled", "2: no token given"},
			"newer":                    {"1: because newer can't be read", "1: because newer can't be read", "2: no token given"},
			"orphaned":                 {"1: because orphaned is not held, because its lock row was deleted", "1: its lock row was deleted", "2: no token given"},
			"unconfirmed":              {"1: if the claim is not confirmed, the lock becomes free one lease after the claim", "1: is not the current token", "2: no token given"},
			"orders/member/0000":       {yes, "1: is not the current token of orders/member/0000", "2: no token given"},
			"orders/member/0007":       {yes, "1: is not the current token of orders/member/0007", "2: no token given"},
			"orders/partition/taken":   {"2: orders/partition/taken is a partition", "2: is a partition", "2: is a partition"},
			"orders/partition/of-dead": {"2: is a partition", "2: is a partition", "2: is a partition"},
			"orders/partition/adrift":  {"2: is a partition", "2: is a partition", "2: is a partition"},
		} {
			l := all[name]
			for token, says := range map[table.Token]string{l.Token: want.right, l.Token + 1: want.wrong, max(l.Token, 2) - 1: want.wrong, 0: want.none, -1: want.none} {
				if token == 0 && l.Token == 0 { // a token that nobody has
					says = want.none
				}
				err := breakable(l, token)
				if says == yes {
					assert.NoError(t, err, "%s, %v", name, token)
					continue
				}
				endsWith(t, err, says, "%s, %v", name, token)
				assert.Regexp(t, "^no", err.Error(), "it says that nothing was released, or that no token was given")
				assert.Equal(t, name == "newer" && token > 0, errors.Is(err, table.ErrNewer), "%s, %v", name, token)
			}
		}
		member := all["orders/member/0000"]
		assert.ErrorContains(t, breakable(all["orders/partition/taken"], 0),
			fmt.Sprintf("to free all partitions of one, release that member:\n  spindle release orders/member/0000 --token %v", member.Token))
		unknown := all["orders/partition/taken"]
		unknown.Member, unknown.LeaseRecord = table.LeaseRef{}, nil
		assert.ErrorContains(t, breakable(unknown, 0), "another member of the group will claim it once it is free")
	})
}

// A lock that an operator releases is free at once, with the trace of that for its former holder. All other locks stay as they are, and so
// does a lock whose term has ended meanwhile.
func TestAReleaseChangesNoOtherTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &database.Database{Timeout: time.Second}
		for _, name := range []string{"held", "leaving", "expired", "garbled", "orders/member/0000"} {
			tab, all := everyState(t)
			before := tab.Store.(*memstore.Store).Rows()
			l := all[name]

			text, err := breakLock(t.Context(), o, tab, l, l.Token+1)
			assert.EqualError(t, err, fmt.Sprintf("nothing was released: %d is no longer the current token of %s, because its term has just ended", l.Token+1, name))
			assert.Empty(t, text)
			assert.Equal(t, before, tab.Store.(*memstore.Store).Rows())

			text, err = breakLock(t.Context(), o, tab, l, l.Token)
			require.NoError(t, err)
			assert.Contains(t, text, fmt.Sprintf("released %s, which was held under token %v\n", name, l.Token))
			assert.Equal(t, l.IsPart(), strings.Contains(text, stillLand), "%s: %s", name, text)
			assert.Equal(t, l.IsPart(), strings.Contains(text, allFree), "%s: %s", name, text)
			after := tab.Store.(*memstore.Store).Rows()
			valid, err := tab.Valid(t.Context(), l.Token, name)
			require.NoError(t, err)
			assert.False(t, valid, "its fenced writes still land")
			assert.True(t, after[name].Heartbeat.IsZero(), "%s is still held", name)
			assert.Contains(t, after, table.BrokenRow(name))
			delete(before, table.LeaseKey(name, l.Token))
			delete(after, table.BrokenRow(name))
			before[name], after[name] = table.Row{}, table.Row{}
			assert.Equal(t, before, after)
		}
	})
}

// A release whose reply was lost, so that the client sent it again, is a release.
func TestAReleaseThatIsSentAgainIsARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, all := everyState(t)
		link := &memstore.Link{Store: tab.Store}
		link.Again(memstore.Once("break"))
		l := all["held"]
		text, err := breakLock(t.Context(), &database.Database{Timeout: time.Second}, table.Table{Store: link}, l, l.Token)
		require.NoError(t, err)
		assert.Contains(t, text, "released held")
	})
}

// A release that the database does not answer ends at the timeout.
func TestAReleaseThatIsNotAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, all := everyState(t)
		began := time.Now()
		_, err := breakLock(t.Context(), &database.Database{Timeout: timeout}, slow(tab.Store, func(int) time.Duration { return time.Hour }), all["held"], all["held"].Token)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, timeout, time.Since(began))
	})
}

// A user who answers the question knows who holds the lock, and how long the holder may go on. A member has partitions, to which its
// writes still commit: what is said of a lock would be wrong.
func TestAQuestionSaysWhatAReleaseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := everyState(t)
		for _, name := range []string{"held", "expired", "garbled", "orders/member/0000"} {
			l := all[name]
			text := consequences(l)
			assert.True(t, strings.HasPrefix(text, model.Sentence(l)+"\n\nIf you continue:\n  - "), text)
			assert.Equal(t, name == "garbled", strings.Contains(text, "up to a third of its lease later"), text)
			assert.Equal(t, name != "garbled", strings.Contains(text, "up to 10s later"), text)
			assert.Equal(t, l.IsPart(), strings.Contains(text, "  - "+allFree+";\n  - "+stillLand+";\n"), text)
			assert.Equal(t, !l.IsPart(), strings.Contains(text, "the lock becomes free immediately"), text)
			assert.Equal(t, !l.IsPart(), strings.Contains(text, "fenced writes under this token fail from then on"), text)
		}
	})
}
