// Package steps performs steps of the protocol, for tests of the table.
package steps

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// Claim claims a lock, for a candidate whose id names the lock.
func Claim(t *testing.T, tab table.Table, name string) table.Token {
	t.Helper()
	seen, err := tab.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), name+"'s holder", seen...)
	require.NoError(t, err)
	return token
}

// Hold claims a lock and confirms it.
func Hold(t *testing.T, tab table.Table, name string, lease time.Duration) table.Token {
	t.Helper()
	token := Claim(t, tab, name)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease, Value: "at " + name}, name))
	return token
}

// Join makes id a member of the group "orders".
func Join(t *testing.T, tab table.Table, slot int, id string, lease time.Duration) table.LeaseRef {
	t.Helper()
	name := table.SlotName("orders", slot)
	seen, err := tab.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), id, seen...)
	require.NoError(t, err)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease, ID: id, Value: "at " + id, ListDigest: "p"}, name))
	return table.LeaseRef{Name: name, Token: token}
}

// ClaimFor lets the member claim partitions of the group.
func ClaimFor(t *testing.T, tab table.Table, m table.LeaseRef, partitions ...string) (names []string, token table.Token) {
	t.Helper()
	for _, p := range partitions {
		names = append(names, table.PartitionName("orders", p))
	}
	r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: names})
	require.NoError(t, err)
	var seen []table.Observation
	for _, name := range names {
		seen = append(seen, r.Partitions[name])
	}
	token, _, err = tab.ClaimPartitions(t.Context(), m, seen...)
	require.NoError(t, err)
	return names, token
}

// Take lets the member claim partitions of the group, and confirms them.
func Take(t *testing.T, tab table.Table, m table.LeaseRef, lease time.Duration, partitions ...string) table.Token {
	t.Helper()
	names, token := ClaimFor(t, tab, m, partitions...)
	kept, err := tab.ConfirmPartitions(t.Context(), m, table.LeaseRecord{Lease: lease}, token, names...)
	require.NoError(t, err)
	require.Len(t, kept, len(names))
	return token
}

// Drop deletes rows by hand.
func Drop(t *testing.T, tab table.Table, names ...string) {
	t.Helper()
	var writes []table.Write
	for _, name := range names {
		writes = append(writes, table.Write{Kind: table.Delete, Name: name})
	}
	require.NoError(t, tab.Store.Commit(t.Context(), "test", writes))
}
