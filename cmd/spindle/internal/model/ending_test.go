package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Two reads show why a term ended between them, to the microsecond: an operator must not look for a crash where a holder
// released its lock, nor take a crash for a release.
func TestTwoReadsShowWhyATermEnded(t *testing.T) {
	const us = time.Microsecond
	at := commandtest.At
	was := commandtest.Held("l", "a", at(100), at(103), 10*time.Second) // until 113
	was.At = at(105)
	late := was
	late.At = at(109)
	leaving := late
	leaving.LeaseRecord = &table.LeaseRecord{Lease: 10 * time.Second, ID: "a"}
	leaving.Writer = ""
	expired := was
	expired.At = at(113)
	claimed := was
	claimed.LeaseRecord = nil
	taken := func(id string, at, read time.Time) operator.Listing {
		l := commandtest.Held("l", id, at, at.Add(us), 10*time.Second)
		l.At = read
		return l
	}
	released := func(at, read time.Time) operator.Listing {
		l := commandtest.FreeSince("l", at)
		l.At = read
		return l
	}
	gone := operator.Listing{Observation: table.Observation{Name: "l", At: at(120)}}
	began := taken("b", at(106), at(107)) // its token is older than its term
	began.Token, began.Began = table.TokenAt(at(90)), at(106)
	for what, c := range map[string]struct {
		was, now operator.Listing
		to       time.Time
		end      End
	}{
		"expired, then taken":                    {expired, taken("b", at(200), at(201)), at(113), EndExpired},
		"expired, then taken by its holder":      {expired, taken("a", at(200), at(201)), at(113), EndExpired},
		"expired, then deleted":                  {expired, gone, at(113), EndExpired},
		"expired, then released":                 {expired, released(at(200), at(201)), at(113), EndExpired},
		"deleted":                                {was, gone, at(120), EndDeleted},
		"released":                               {was, released(at(106), at(107)), at(106), EndReleased},
		"released just in time":                  {late, released(at(113).Add(-us), at(113)), at(113).Add(-us), EndReleased},
		"released late, reads close together":    {late, released(at(113), at(114).Add(-us)), at(113), EndExpired},
		"released late, reads half a lease off":  {late, released(at(113), at(114)), at(113), EndUnseen},
		"taken by another":                       {was, taken("b", at(106), at(107)), at(106), EndReleased},
		"taken by another, through a free row":   {was, began, at(106), EndReleased},
		"taken again":                            {was, taken("a", at(106), at(107)), at(106), EndReclaimed},
		"taken by another, just in time":         {late, taken("b", at(113).Add(-us), at(200)), at(113).Add(-us), EndReleased},
		"taken by another, soon after a read":    {late, taken("b", at(114).Add(-us), at(200)), at(113), EndExpired},
		"taken by another, half a lease later":   {late, taken("b", at(114), at(114).Add(us)), at(114), EndUnseen},
		"taken again after the end of the lease": {late, taken("a", at(113), at(114)), at(113), EndExpired},
		"handed over":                            {leaving, taken("b", at(110), at(111)), at(110), EndHandedOver},
		"handed over to itself":                  {leaving, taken("a", at(110), at(111)), at(110), EndHandedOver},
		"announced and released":                 {leaving, released(at(110), at(111)), at(110), EndHandedOver},
		"announced and expired":                  {leaving, taken("b", at(113), at(114)), at(113), EndExpired},
		"announced and deleted":                  {leaving, gone, at(120), EndDeleted},
		"without a lease row, and released":      {claimed, released(at(300), at(301)), at(300), EndReleased},
	} {
		to, end := Ending(c.was, c.now)
		assert.Equal(t, []any{c.to.UTC(), c.end}, []any{to.UTC(), end}, what)
	}
}
