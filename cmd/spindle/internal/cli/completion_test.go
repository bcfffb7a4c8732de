package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
	"github.com/spindle-lock/spindle/spindletest"
)

// A shell offers all names that can follow, each once and with what it is, and none that would be wrong there: neither a released lock
// where only a holder can be asked, nor what acts on the terminal, nor the token of a partition.
func TestAShellOffersWhatIsInTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		const lease = 10 * time.Second
		expired := steps.Hold(t, tab, "nightly-old", lease)
		time.Sleep(lease)
		held := steps.Hold(t, tab, "nightly", lease)
		odd := steps.Hold(t, tab, "odd\x1b", lease)
		require.NoError(t, tab.Release(t.Context(), steps.Hold(t, tab, "weekly", lease), "weekly"))
		claimed := steps.Claim(t, tab, "new")
		member := steps.Join(t, tab, 0, "web-1", lease)
		steps.Take(t, tab, member, lease, "7", "8")
		require.NoError(t, tab.Release(t.Context(), steps.Join(t, tab, 1, "web-2", lease).Token, table.SlotName("orders", 1)))

		token := func(l operator.Listing) (string, string) { return l.Token.String(), l.Holder() }
		id := func(l operator.Listing) (string, string) { return l.Holder(), l.Name }
		for _, c := range []struct {
			ask         completer
			lock, begun string
			want        []string
		}{
			{lockNames(false), "", "", []string{"new\tunconfirmed", "nightly\theld", "nightly-old\texpired", "orders/\theld"}},
			{lockNames(true), "", "", []string{"new\tunconfirmed", "nightly\theld", "nightly-old\texpired", "weekly\treleased", "orders/\theld"}},
			{lockNames(false), "", "night", []string{"nightly\theld", "nightly-old\texpired"}},
			{lockNames(false), "", "nightly", []string{"nightly\theld", "nightly-old\texpired"}},
			{lockNames(false), "", "weekly", nil},
			{lockNames(true), "", "w", []string{"weekly\treleased"}},
			{lockNames(true), "", "x", nil},
			{lockNames(false), "", "odd", nil},
			{lockNames(false), "", "ord", []string{"orders/\theld"}},
			{lockNames(false), "", "orders/", []string{"orders/member/0000\theld", "orders/member/0001\treleased", "orders/partition/7\theld", "orders/partition/8\theld"}},
			{lockNames(false), "", "orders/p", []string{"orders/partition/7\theld", "orders/partition/8\theld"}},
			{groupNames, "", "", []string{"orders\t1 member, 2 partitions"}},
			{groupNames, "", "orders", []string{"orders\t1 member, 2 partitions"}},
			{groupNames, "", "orders-", nil},
			{groupNames, "", "n", nil},
			{listed(lockNames(true)), "", "w", []string{"weekly\treleased"}},
			{listed(lockNames(true)), "", "a,b,n", []string{"a,b,new\tunconfirmed", "a,b,nightly\theld", "a,b,nightly-old\texpired"}},
			{listed(lockNames(true)), "", "weekly,", []string{"weekly,new\tunconfirmed", "weekly,nightly\theld", "weekly,nightly-old\texpired", "weekly,weekly\treleased", "weekly,orders/\theld"}},
			{holding(id), "", "", []string{"new's holder\tnew", "nightly's holder\tnightly", "nightly-old's holder\tnightly-old", "web-1\torders/member/0000"}},
			{holding(id), "", "web", []string{"web-1\torders/member/0000"}},
			{holding(id), "nightly", "", []string{"nightly's holder\tnightly"}},
			{holding(id), "weekly", "", nil},
			{holding(id), "none", "", nil},
			{holding(token), "nightly", "", []string{held.String() + "\tnightly's holder"}},
			{holding(token), "nightly-old", "", []string{expired.String() + "\tnightly-old's holder"}},
			{holding(token), "odd\x1b", "", []string{odd.String() + "\t$'odd\\x1b\\'s holder'"}},
			{holding(token), "new", "", []string{claimed.String() + "\tnew's holder"}},
			{holding(token), "orders/member/0000", "", []string{member.Token.String() + "\tweb-1"}},
			{holding(token), "orders/member/0001", "", nil},
			{holding(token), "orders/partition/7", "", nil},
			{holding(token), "nightly", held.String()[:10], []string{held.String() + "\tnightly's holder"}},
			{holding(token), "nightly", "9999999999999999", nil},
		} {
			found, err := c.ask(t.Context(), tab, c.lock, c.begun)
			require.NoError(t, err)
			assert.Equal(t, c.want, found, "%q, %q", c.lock, c.begun)
		}
		away := table.Table{Store: table.Via(func(context.Context, string, func(context.Context, table.Store) error) error {
			return errors.New("away")
		})}
		for _, ask := range []completer{lockNames(false), lockNames(true), groupNames, listed(lockNames(true)), holding(id)} {
			for _, lock := range []string{"", "nightly"} {
				found, err := ask(t.Context(), away, lock, "n")
				assert.ErrorContains(t, err, "away")
				assert.Empty(t, found)
			}
		}
	})
}

// A shell goes on after a group's name, which is followed by the name of one of its locks, and after each other word puts a space. Files
// are never offered. If the flags are wrong, or the table can't be read, nothing is offered and nothing is said.
func TestAShellGoesOnAfterTheNameOfAGroup(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:1")
	const none, group = cobra.ShellCompDirectiveNoFileComp, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	for _, test := range []struct {
		found     []string
		err       error
		want      []string
		directive cobra.ShellCompDirective
	}{
		{nil, nil, nil, none},
		{[]string{"a\theld"}, nil, []string{"a\theld"}, none},
		{[]string{"a/\theld"}, nil, []string{"a/\theld"}, group},
		{[]string{"a/\theld", "a/b\theld"}, nil, []string{"a/\theld", "a/b\theld"}, none},
		{[]string{"a\tof b/"}, nil, []string{"a\tof b/"}, none},
		{[]string{"a/\theld"}, errors.New("half of them"), nil, none},
	} {
		o, c := &database.Database{}, &cobra.Command{}
		o.Flags(c.Flags())
		c.SetContext(t.Context())
		asks := func(ctx context.Context, _ table.Table, lock, begun string) ([]cobra.Completion, error) {
			end, limited := ctx.Deadline()
			assert.True(t, limited && time.Until(end) <= atTab)
			assert.Equal(t, []string{"lock", "begun"}, []string{lock, begun})
			return test.found, test.err
		}
		found, directive := fromTable(o, c, asks, "lock", "begun")
		assert.Empty(t, found, "without a database")
		assert.Equal(t, none, directive)
		t.Setenv("SPINDLE_DB", "projects/p/instances/i/databases/d")
		found, directive = fromTable(o, c, asks, "lock", "begun")
		assert.Equal(t, test.want, found)
		assert.Equal(t, test.directive, directive)
		t.Setenv("SPINDLE_TIMEOUT", "soon")
		found, _ = fromTable(o, c, asks, "lock", "begun")
		assert.Empty(t, found)
		t.Setenv("SPINDLE_TIMEOUT", "")
		t.Setenv("SPINDLE_DB", "")
	}
}

// A user who presses Tab waits for no more than a second, even for a client that does not heed that.
func TestAShellDoesNotWaitForAClient(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:1")
	o, c := &database.Database{}, &cobra.Command{}
	o.Flags(c.Flags())
	o.Path = "projects/p/instances/i/databases/d"
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // instead of the second
	c.SetContext(ctx)
	late := make(chan struct{})
	defer close(late)
	found, directive := fromTable(o, c, func(context.Context, table.Table, string, string) ([]string, error) {
		<-late
		return []string{"late"}, nil
	}, "", "")
	assert.Empty(t, found)
	assert.Equal(t, cobra.ShellCompDirectiveNoFileComp, directive)
}

// completed returns what a shell offers for the last word, separated by bars, and what the shell then does.
func completed(t *testing.T, words ...string) (found string, directive cobra.ShellCompDirective) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append([]string{"__complete"}, words...))
	require.NoError(t, root.Execute())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	_, err := fmt.Sscanf(lines[len(lines)-1], ":%d", &directive)
	require.NoError(t, err)
	return strings.Join(lines[:len(lines)-1], "|"), directive
}

// After a state, a shell puts no space, because another state may follow. After a word that stands alone, it does.
func TestAListOfStatesCanBeContinued(t *testing.T) {
	const none, list = cobra.ShellCompDirectiveNoFileComp, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	for words, want := range map[string]struct {
		offers    string
		directive cobra.ShellCompDirective
	}{
		"ls --state":           {"held", list},
		"ls --output":          {"wide", none},
		"doctor -o":            {"json", none},
		"init --dialect":       {"postgresql", none},
		"version --log-format": {"text", none},
	} {
		found, directive := completed(t, append(strings.Fields(words), "")...)
		assert.Contains(t, strings.Split(found, "|"), want.offers, words)
		assert.Equal(t, want.directive, directive, words)
	}
}

// The rows of a group do not begin with its name if that has characters that are escaped there. A shell offers the name all
// the same.
func TestAGroupIsOfferedHoweverItsRowsAreNamed(t *testing.T) {
	for _, group := range []string{"orders", "eu/orders", "100%", "größe", "a_b"} {
		tab, slot := table.Table{Store: &memstore.Store{}}, table.SlotName(group, 0)
		require.NoError(t, tab.Confirm(t.Context(), steps.Claim(t, tab, slot), table.LeaseRecord{Lease: time.Hour, ListDigest: "p"}, slot))
		for i := range len(group) + 1 {
			if !utf8.ValidString(group[:i]) {
				continue
			}
			found, err := groupNames(t.Context(), tab, "", group[:i])
			require.NoError(t, err)
			assert.Equal(t, []string{group + "\t1 member, 0 partitions"}, found, group[:i])
		}
	}
}

// Each argument and each flag is completed with what fits there, and only there: locks in use where a holder is asked, all locks where one is
// taken, the id of a holder where it is checked but not where a new one is given, and nothing after the last argument.
func TestEachWordIsCompletedWithWhatFitsThere(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t)
	t.Setenv("SPANNER_EMULATOR_HOST", db.Host)
	t.Setenv("SPINDLE_DB", db.Path)
	tab := table.Table{Store: table.Spanner{DB: db.Client, Table: db.Table}}
	const lease = time.Hour
	one, two := steps.Hold(t, tab, "nightly", lease), steps.Hold(t, tab, "hourly", lease)
	require.NoError(t, tab.Release(t.Context(), steps.Hold(t, tab, "weekly", lease), "weekly"))
	member := steps.Join(t, tab, 0, "web-1", lease)
	const inUse, all = "hourly\theld|nightly\theld|orders/\theld", "hourly\theld|nightly\theld|weekly\treleased|orders/\theld"
	const groups = "orders\t1 member, 0 partitions"
	tokens := fmt.Sprintf("%v\thourly, hourly's holder|%v\tnightly, nightly's holder|%v\torders/member/0000, web-1", two, one, member.Token)
	for words, want := range map[string]string{
		"ls |": inUse, "status |": inUse, "watch |": inUse, "handover |": inUse, "release |": inUse, "members |": groups,
		"status n|": "nightly\theld", "status nightly |": "", "members orders |": "", "prune |": "", "exec |": "",
		"exec --name |": all, "exec --name w|": "weekly\treleased", "guard --name |": all, "watch --prefix |": all,
		"status --expect |": all, "serve --expect nightly,|": "nightly,hourly\theld|nightly,nightly\theld|nightly,weekly\treleased|nightly,orders/\theld", "doctor --expect h|": "hourly\theld",
		"ls --group |":          groups,
		"status nightly --id |": "nightly's holder\tnightly", "status --id |": "hourly's holder\thourly|nightly's holder\tnightly|web-1\torders/member/0000", "exec --id |": "", "guard --id |": "",
		"release nightly --token |": fmt.Sprintf("%v\tnightly, nightly's holder", one), "handover --token |": tokens, "status hourly --token |": fmt.Sprintf("%v\thourly, hourly's holder", two), "release weekly --token |": "",
		"ls --output |": "table|wide|name|json", "doctor -o |": "table|json", "init --dialect |": "googlesql|postgresql", "ls --log-format |": "text|json", "schema v|": "version", "schema a|": "agent",
	} {
		args := strings.Split(words, " ")
		last := len(args) - 1
		args[last] = strings.TrimSuffix(args[last], "|")
		var found string
		for end := time.Now().Add(time.Minute); ; { // a busy machine may not answer within the second for which a shell waits
			var directive cobra.ShellCompDirective
			found, directive = completed(t, args...)
			assert.False(t, want != "" && directive == cobra.ShellCompDirectiveDefault, "%s: files are offered too", words)
			if found != "" || want == "" || time.Now().After(end) {
				break
			}
		}
		assert.Equal(t, want, found, words)
	}
}
