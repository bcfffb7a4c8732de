package model

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Programs read locks as JSON: each key has what its description says, in UTC, and a key without a value is left out.
func TestTheJSONOfALockHasWhatIsKnownAndNoMore(t *testing.T) {
	zone := time.FixedZone("", 3600)
	held := commandtest.Held("l", "a", commandtest.At(100), commandtest.At(103).In(zone), 10*time.Second)
	held.At = commandtest.At(107.5).In(zone)
	full := held
	full.LeaseRecord = &table.LeaseRecord{Lease: 10 * time.Second, Value: "v"}
	full.Began = commandtest.At(99).In(zone)
	full.Done = table.Done{Due: table.Due{Key: "42"}, By: "b", At: commandtest.At(90).In(zone)}
	full.Waiters = []table.Ticket{{ID: "x", Time: table.TokenAt(commandtest.At(101)), Key: "7", Set: true}, {ID: "y", Time: table.TokenAt(commandtest.At(100))}, {Time: table.TokenAt(commandtest.At(109))}}
	full.Cut = true
	partition := commandtest.PartitionWith(commandtest.MemberOf(3, "m", commandtest.At(50), commandtest.At(103)), "eu", commandtest.At(60))
	member := commandtest.MemberOf(3, "m", commandtest.At(50), commandtest.At(103))
	claimed := held
	claimed.LeaseRecord = nil
	unreadable, undone, both := held, held, held
	unreadable.Unreadable, undone.Undone = errors.New("no lease"), errors.New("no key")
	both.Unreadable, both.Undone = unreadable.Unreadable, undone.Undone
	orphan := operator.Listing{Observation: table.Observation{Name: "l", Token: 5, At: commandtest.At(103), OrphanLeases: map[table.Token]table.LeaseRecord{5: {}}}}
	old := held
	old.At = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // more than a time.Duration
	const ofHeld = `"holder":"a","token":"100000000","since":"1970-01-01T00:01:40Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":4.5,"lease_seconds":10,"at":"1970-01-01T00:01:47.5Z"`
	for what, c := range map[string]struct {
		l    operator.Listing
		want string
	}{
		"held": {held, `{"name":"l","state":"held",` + ofHeld + `}`},
		"held, with everything": {full, `{"name":"l","state":"held","holder":"a","value":"v","token":"100000000","since":"1970-01-01T00:01:39Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":4.5,"lease_seconds":10,"at":"1970-01-01T00:01:47.5Z",` +
			`"done":"42","done_by":"b","done_at":"1970-01-01T00:01:30Z","done_age_seconds":17.5,"waiting":3,"waiting_at_least":true,"longest_wait_seconds":7.5}`},
		"claimed":    {claimed, `{"name":"l","state":"unconfirmed","holder":"a","token":"100000000","since":"1970-01-01T00:01:40Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":4.5,"at":"1970-01-01T00:01:47.5Z"}`},
		"released":   {commandtest.FreeSince("l", commandtest.At(103)), `{"name":"l","state":"released","since":"1970-01-01T00:01:43Z","at":"1970-01-01T00:01:43Z"}`},
		"free":       {operator.Listing{Observation: table.Observation{Name: "l", At: commandtest.At(103)}}, `{"name":"l","state":"free","at":"1970-01-01T00:01:43Z"}`},
		"orphaned":   {orphan, `{"name":"l","state":"orphaned","token":"5","since":"1970-01-01T00:00:00.000005Z","at":"1970-01-01T00:01:43Z"}`},
		"unreadable": {unreadable, `{"name":"l","state":"unreadable",` + ofHeld + `,"problem":"no lease"}`},
		"undone":     {undone, `{"name":"l","state":"held",` + ofHeld + `,"problem":"no key"}`},
		"both":       {both, `{"name":"l","state":"unreadable",` + ofHeld + `,"problem":"no lease"}`},
		"partition":  {partition, `{"name":"orders/partition/eu","state":"held","holder":"m","token":"60000000","since":"1970-01-01T00:01:00Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":0,"lease_seconds":10,"at":"1970-01-01T00:01:43Z","group":"orders","partition":"eu","member":"orders/member/0003"}`},
		"member":     {member, `{"name":"orders/member/0003","state":"held","holder":"m","token":"50000000","since":"1970-01-01T00:00:50Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":0,"lease_seconds":10,"at":"1970-01-01T00:01:43Z","group":"orders"}`},
		"a name":     {commandtest.Held("orders/partition/eu", "a", commandtest.At(100), commandtest.At(103), time.Second), `{"name":"orders/partition/eu","state":"held","holder":"a","token":"100000000","since":"1970-01-01T00:01:40Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":0,"lease_seconds":1,"at":"1970-01-01T00:01:43Z"}`},
		"long ago":   {old, `{"name":"l","state":"expired","holder":"a","token":"100000000","since":"1970-01-01T00:01:40Z","heartbeat":"1970-01-01T00:01:43Z","heartbeat_age_seconds":253370764697,"lease_seconds":10,"at":"9999-01-01T00:00:00Z"}`},
	} {
		got, err := json.Marshal(JSONOf(c.l))
		assert.NoError(t, err)
		assert.Equal(t, c.want, string(got), what)
	}
	got, err := json.Marshal(StatusOf(full).Waiters)
	assert.NoError(t, err)
	assert.Equal(t, `[{"place":1,"id":"x","since":"1970-01-01T00:01:41Z","waiting_seconds":6.5,"key":"7","set":true,"notified":"no notifications"},`+
		`{"place":2,"id":"y","since":"1970-01-01T00:01:40Z","waiting_seconds":7.5,"notified":"no notifications"},`+
		`{"place":3,"since":"1970-01-01T00:01:49Z","waiting_seconds":0,"notified":"no notifications"}]`, string(got), "a wait is never negative")
	assert.Equal(t, JSONOf(full), StatusOf(full).LockJSON)
}

// The columns of a list for people are those of their headings, and what is not known is a dash.
func TestTheColumnsOfALockHaveWhatTheirHeadingsSay(t *testing.T) {
	held := commandtest.Held("l", "a", commandtest.At(100), commandtest.At(103), 10*time.Second)
	held.At, held.LeaseRecord.Value = commandtest.At(107), "v"
	held.Done = table.Done{Due: table.Due{Key: "42"}, By: "b", At: commandtest.At(100)}
	held.Waiters = []table.Ticket{{ID: "x", Time: table.TokenAt(commandtest.At(101))}}
	claimed := held
	claimed.LeaseRecord, claimed.Done, claimed.Waiters = nil, table.Done{}, nil
	released := commandtest.FreeSince("l", commandtest.At(100))
	released.At = commandtest.At(107)
	free := operator.Listing{Observation: table.Observation{Name: "l\x1b", At: commandtest.At(107)}}
	for _, c := range []struct {
		l           operator.Listing
		cells       []string
		more        []string
		tail, below string
		last        string
	}{
		{held, []string{"l", "held", "100000000", "7.0s", "4.0s", "10s"}, []string{"1 waiting, longest 6.0s", "42, 7.0s ago, by b", "a"}, "a  v  1 waiting, longest 6.0s", "last done: 42, 7.0s ago, by b", "v"},
		{claimed, []string{"l", "unconfirmed", "100000000", "7.0s", "4.0s", "-"}, []string{"-", "-", "a"}, "a", "", "-"},
		{released, []string{"l", "released", "-", "7.0s", "-", "-"}, []string{"-", "-", "-"}, "", "", "-"},
		{free, []string{`$'l\x1b'`, "free", "-", "-", "-", "-"}, []string{"-", "-", "-"}, "", "", "-"},
	} {
		e := LockEntry(c.l)
		assert.Equal(t, c.cells, e.Cells)
		assert.Equal(t, []any{c.more, c.tail, c.below, c.last}, []any{e.More, e.Tail, e.Below, e.Last})
		assert.Equal(t, []any{c.l, c.l.State(), JSONOf(c.l), Styles[c.l.State()]}, []any{e.Listing, e.State, e.Object, e.Style})
		assert.Equal(t, e.Row, Rows([]Entry{{}, e})[1])
	}
	for _, state := range All {
		assert.Contains(t, Styles, state, "each state has its colour")
	}
	assert.NotEqual(t, Styles[operator.Held], Styles[operator.Expired], "green means that all is well")
}
