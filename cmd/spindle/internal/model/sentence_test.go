package model

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Each state has its own words, in the line of spindle watch and in the sentence of spindle status. Otherwise, an operator would take a
// paused partition for one that was never claimed.
func TestEachStateHasItsOwnWords(t *testing.T) {
	held := commandtest.Held("l", "a", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	leaving := held
	leaving.Writer = ""
	expired := held
	expired.At = commandtest.At(1000)
	unconfirmed := held
	unconfirmed.LeaseRecord = nil
	released := commandtest.FreeSince("l", commandtest.At(103))
	paused := released
	paused.Paused, paused.Member = true, table.LeaseRef{Name: "orders/member/0001", Token: 7}
	unreadable := held
	unreadable.Unreadable = errors.New("no valid lease")
	orphaned := operator.Listing{Observation: table.Observation{Name: "l", At: commandtest.At(103)}, Adrift: true}
	changes, sentences := map[string]operator.State{}, map[string]operator.State{}
	for state, l := range map[operator.State]operator.Listing{
		operator.Held: held, operator.Leaving: leaving, operator.Expired: expired, operator.Unconfirmed: unconfirmed,
		operator.Released: released, operator.Paused: paused, operator.Unreadable: unreadable, operator.Orphaned: orphaned,
		operator.Free: {Observation: table.Observation{Name: "l", At: commandtest.At(103)}},
	} {
		assert.Equal(t, state, l.State())
		changes[Change(l)], sentences[Sentence(l)] = state, state
	}
	assert.Len(t, changes, len(All)-1, "%v", changes) // a lock is never partial, only a group
	assert.Len(t, sentences, len(All)-1, "%v", sentences)
	assert.Contains(t, Change(paused), "paused by the program of its member, orders/member/0001")
}
