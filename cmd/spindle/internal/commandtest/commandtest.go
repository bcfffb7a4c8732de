// Package commandtest has test helpers for the command's packages.
package commandtest

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// At returns the time s seconds after the start of 1970.
func At(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }

// Held returns a held lock, as seen at its last heartbeat.
func Held(name, holder string, token, heartbeat time.Time, lease time.Duration) operator.Listing {
	return operator.Listing{Observation: table.Observation{Name: name, At: heartbeat, Exists: true, Heartbeat: heartbeat,
		Token: table.TokenAt(token), Writer: holder, LeaseRecord: &table.LeaseRecord{Lease: lease}}}
}

// Lease is the lease of the members and locks that tests create.
const Lease = 10 * time.Second

// MemberOf returns a member of the group "orders" in the given slot.
func MemberOf(slot int, id string, token, heartbeat time.Time) operator.Listing {
	l := Held(table.SlotName("orders", slot), id, token, heartbeat, Lease)
	l.LeaseRecord.ListDigest = "p"
	return l
}

// PartitionWith returns a partition that a member holds.
func PartitionWith(m operator.Listing, partition string, token time.Time) operator.Listing {
	l := m
	l.Name, l.Token, l.Member = table.PartitionName("orders", partition), table.TokenAt(token), table.LeaseRef{Name: m.Name, Token: m.Token}
	return l
}

// FreeSince returns a lock that was released.
func FreeSince(name string, released time.Time) operator.Listing {
	return operator.Listing{Observation: table.Observation{Name: name, At: released, Exists: true, Token: table.TokenAt(released)}}
}

// Captured returns what this process writes to standard error until the test ends.
func Captured(t *testing.T) *fleet.Log {
	said, before := &fleet.Log{}, terminal.Stderr
	terminal.Stderr = terminal.NewJournal(said)
	t.Cleanup(func() { terminal.Stderr = before })
	return said
}

// Complaints returns the lines that f writes to standard error.
func Complaints(f func()) []string {
	var out fleet.Log
	before := terminal.Stderr
	terminal.Stderr = terminal.NewJournal(&out)
	_ = terminal.Stderr.Format.Set("json")
	defer func() { terminal.Stderr = before }()
	f()
	if out.String() == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Away is the error from a database that can't be reached.
var Away = status.Error(codes.Unavailable, "the database is away")
