package cli

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

func at(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }

func held(name, holder string, token, heartbeat time.Time, lease time.Duration) table.Listing {
	return table.Listing{Observation: table.Observation{Name: name, At: heartbeat, Exists: true, Heartbeat: heartbeat,
		Token: table.TokenAt(token), Writer: holder, LeaseRecord: &table.LeaseRecord{Lease: lease}}}
}

const theLease = 10 * time.Second

// memberOf is a member of the group "orders" in a slot.
func memberOf(slot int, id string, token, heartbeat time.Time) table.Listing {
	l := held(table.SlotName("orders", slot), id, token, heartbeat, theLease)
	l.LeaseRecord.ListDigest = "p"
	return l
}

// partitionWith is a partition that is held with a member.
func partitionWith(m table.Listing, partition string, token time.Time) table.Listing {
	l := m
	l.Name, l.Token, l.Member = table.PartitionName("orders", partition), table.TokenAt(token), table.LeaseRef{Name: m.Name, Token: m.Token}
	return l
}

// freeSince is a lock that was released.
func freeSince(name string, released time.Time) table.Listing {
	return table.Listing{Observation: table.Observation{Name: name, At: released, Exists: true, Token: table.TokenAt(released)}}
}
