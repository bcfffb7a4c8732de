package operate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestAPartitionIsNotReleasedAlone(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := commandtest.FreeSince("orders/partition/17", commandtest.At(100)), commandtest.Held("orders/partition/17", "", commandtest.At(90), commandtest.At(100), commandtest.Lease)
	over.Member = m
	adrift.Member, adrift.Adrift = m, true
	assert.ErrorContains(t, breakable(over, 7), "nothing was released: orders/partition/17 is free")
	assert.ErrorContains(t, breakable(adrift, 7), "spindle release orders/member/0003 --token 7")
}
