package model

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// hold lets a candidate hold a lock.
func hold(t *testing.T, tab table.Table, name string, p table.LeaseRecord) table.Token {
	seen, err := tab.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), "a", seen...)
	require.NoError(t, err)
	p.Lease = commandtest.Lease
	require.NoError(t, tab.Confirm(t.Context(), token, p, name))
	return token
}

// A group may have the name of a lock. The lock is nevertheless found by it, whatever becomes of its holder.
func TestAGroupDoesNotHideTheLockThatHasItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		hold(t, tab, table.SlotName("both", 1), table.LeaseRecord{ListDigest: "p"})
		is := func(want operator.State) {
			t.Helper()
			l, err := OneLock(t.Context(), tab, "both")
			require.NoError(t, err)
			assert.Equal(t, want, l.State())
		}
		seen, err := tab.Observe(t.Context(), "both")
		require.NoError(t, err)
		_, err = tab.Claim(t.Context(), "a", seen...)
		require.NoError(t, err)
		is(operator.Unconfirmed)
		token := hold(t, tab, "both", table.LeaseRecord{})
		is(operator.Held)
		time.Sleep(2 * commandtest.Lease)
		is(operator.Expired)
		require.NoError(t, tab.Release(t.Context(), token, "both"))
		is(operator.Released)
	})
}

// Who asks for a lock by the name of a group is not told that the lock is free: a script would start a second process. A
// lock that has a group's name is found, and a read that fails is no answer.
func TestALockIsReadByItsNameAndAGroupIsNotTakenForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		tab := table.Table{Store: link}
		hold(t, tab, table.SlotName("orders", 2), table.LeaseRecord{ListDigest: "p"})
		hold(t, tab, table.SlotName("orders", 1), table.LeaseRecord{ListDigest: "p"})
		hold(t, tab, table.SlotName("both", 1), table.LeaseRecord{ListDigest: "p"})
		hold(t, tab, "both", table.LeaseRecord{})
		require.NoError(t, tab.Release(t.Context(), hold(t, tab, "released", table.LeaseRecord{}), "released"))
		for name, want := range map[string]operator.State{"both": operator.Held, "released": operator.Released, "never": operator.Free,
			"orders/member/0001": operator.Held, "orders/member/0007": operator.Free, "o": operator.Free, "never/": operator.Free, "a/b/": operator.Free} {
			l, err := OneLock(t.Context(), tab, name)
			require.NoError(t, err, name)
			assert.Equal(t, []any{name, want}, []any{l.Name, l.State()})
		}
		for _, name := range []string{"orders", "orders/"} {
			_, err := OneLock(t.Context(), tab, name)
			assert.ErrorContains(t, err, "orders is a group, not a lock; use spindle members orders, or give the name of one of its locks, such as orders/member/0001")
			var exit *terminal.Exit
			assert.ErrorAs(t, err, &exit)
			assert.Equal(t, 2, exit.Code)
			_, err = ExpectedLocks(t.Context(), tab, []string{"both", name})
			assert.ErrorContains(t, err, "is a group")
		}
		found, err := ExpectedLocks(t.Context(), tab, []string{"never", "both", "released"})
		require.NoError(t, err)
		require.Len(t, found, 3)
		assert.Equal(t, []string{"never", "both", "released"}, []string{found[0].Name, found[1].Name, found[2].Name})
		wait := func(name string) {
			require.NoError(t, tab.Queue(t.Context(), table.Ticket{Queue: name, Time: 1, Nonce: "n"}.Put()))
		}
		for i, traces := range []func(name string){wait, func(name string) {
			require.NoError(t, tab.Finish(t.Context(), hold(t, tab, name, table.LeaseRecord{}), 0, name, table.Due{Key: "7"}, "a"))
			steps.Drop(t, tab, name)
		}} {
			for _, group := range []bool{true, false} { // what is left of a lock does not hide a group that has its name
				name := fmt.Sprint("traces", i, group)
				if traces(name); group {
					hold(t, tab, table.SlotName(name, 0), table.LeaseRecord{ListDigest: "p"})
				}
				l, err := OneLock(t.Context(), tab, name)
				assert.Equal(t, []any{operator.Free, group}, []any{l.State(), err != nil}, name)
			}
		}
		outage := errors.New("away")
		for fails := range 2 { // of the two requests for a lock that is free
			asked := -1
			link.Refuse(func(string) error {
				if asked++; asked == fails {
					return outage
				}
				return nil
			})
			_, err := OneLock(t.Context(), tab, "never")
			assert.ErrorIs(t, err, outage, "request %d", fails)
			asked = -1
			_, err = ExpectedLocks(t.Context(), tab, []string{"never", "both"})
			assert.ErrorIs(t, err, outage, "request %d", fails)
		}
		link.Refuse(func(string) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		link.After(func(string) { cancel() })
		_, err = OneLock(ctx, tab, "never")
		assert.Equal(t, codes.Canceled, spanner.ErrCode(err), "the second request ends too")
		for what, read := range map[string]func() error{
			"OneLock":       func() error { _, err := OneLock(ctx, tab, "both"); return err },
			"ExpectedLocks": func() error { _, err := ExpectedLocks(ctx, tab, []string{"both"}); return err },
		} {
			assert.Equal(t, codes.Canceled, spanner.ErrCode(read()), what)
		}
	})
}

// A name that is given twice is checked once, in the order in which the names were given, and a mistake is found before
// anything is read.
func TestTheLocksThatShouldHaveAHolderAreEachNamedOnce(t *testing.T) {
	for _, c := range []struct{ given, want []string }{
		{nil, nil}, {[]string{"b"}, []string{"b"}}, {[]string{"b", "a", "b", "c", "a"}, []string{"b", "a", "c"}},
	} {
		var names []string
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		ExpectFlag(flags, &names)
		for i, name := range c.given {
			if i == 1 {
				continue
			}
			if i == 0 && len(c.given) > 1 {
				name += "," + c.given[1]
			}
			require.NoError(t, flags.Parse([]string{"--expect", name}))
		}
		got, err := CheckExpected(names)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	for _, names := range [][]string{{""}, {"a", "a_1234567890123456"}} {
		_, err := CheckExpected(names)
		assert.ErrorContains(t, err, "--expect: ")
		var exit *terminal.Exit
		assert.ErrorAs(t, err, &exit)
	}
	for _, args := range [][]string{nil, {"a", "b"}, {""}, {"a_1234567890123456"}} {
		assert.Error(t, OneName(&cobra.Command{}, args), "%q", args)
	}
	assert.NoError(t, OneName(&cobra.Command{}, []string{"a"}))
}
