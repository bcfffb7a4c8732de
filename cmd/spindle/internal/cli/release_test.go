package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

func TestAPartitionIsNotReleasedAlone(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := freeSince("orders/partition/17", at(100)), held("orders/partition/17", "", at(90), at(100), theLease)
	over.Member = m
	adrift.Member, adrift.Adrift = m, true
	assert.ErrorContains(t, breakable(over, 7), "nothing was released: orders/partition/17 is free")
	assert.ErrorContains(t, breakable(adrift, 7), "spindle release orders/member/0003 --token 7")
}
