package table

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func rowOf(t Ticket) Row {
	w := t.Put()
	row := Row{Name: w.Name, Heartbeat: time.UnixMicro(7)}
	for _, c := range w.Set {
		if c.Column == ColWriter {
			row.Writer = c.Value.(string)
		}
	}
	return row
}

func TestATicketIsReadAsItWasWritten(t *testing.T) {
	long := strings.Repeat("ü", MaxName/2)
	for _, queue := range []string{"m", "a/b", "a%2Fb", "#", "s/slot/", long, strings.Repeat("m", MaxName), strings.Repeat("m", MaxName-20)} {
		want := Ticket{Queue: queue, Time: 1_700_000_000_000_000, Nonce: strconv.FormatInt(math.MaxInt64, 36), ID: "host/1", Grace: 215 * time.Millisecond, RoundTrip: 5 * time.Millisecond, Key: "3", Slots: 4, Set: true, Ready: true, Beat: time.UnixMicro(7), Lasts: 90 * time.Second}
		row := rowOf(want)
		assert.LessOrEqual(t, len(row.Name), MaxKey, "tables may have no room for a longer one")
		assert.True(t, IsTicket(row.Name))
		assert.Equal(t, []Ticket{want}, Tickets(queue, []Row{row}))
		r := Waiting(queue, "")
		assert.True(t, r.From < row.Name && row.Name < r.To)
		assert.Error(t, CheckName(row.Name), "no lock has such a name")
	}
}

// A lock with the name of another lock's auxiliary row would be overwritten, hidden from lists, and pruned.
func TestNoLockHasTheNameOfAnAuxiliaryRow(t *testing.T) {
	for role, name := range map[Role]string{
		OfTicket: TicketPrefix + "nightly/1", OfPlan: "nightly" + planSuffix, OfDone: "nightly" + doneSuffix, OfBreak: "nightly" + brokenSuffix,
		OfLease: LeaseKey("nightly", TokenAt(time.UnixMicro(1_700_000_000_000_000))),
	} {
		is, _ := RoleOf(name)
		assert.Equal(t, role, is, name)
		assert.Error(t, CheckName(name))
		assert.Error(t, CheckKey(name), "%s: nor has a row of another program", name)
	}
}

// The queue of one name is never mixed with that of a different name, whatever the names contain.
func TestQueuesOfNamesAreApart(t *testing.T) {
	names := []string{"a", "a/", "a/1", "a/1/2", "a%2F1", "ab", "A", "!wait/a", "a\x00", "a#"}
	for _, one := range names {
		for _, other := range names {
			row := rowOf(Ticket{Queue: other, Time: 5, Nonce: "n"})
			r := Waiting(one, "")
			within := r.From <= row.Name && row.Name <= r.To
			assert.Equal(t, one == other, within, "%q among those of %q", other, one)
			assert.Len(t, Tickets(one, []Row{row}), map[bool]int{true: 1}[one == other])
		}
	}
}

// A ticket says for how long after its own commit it counts. One of an older version says nothing: that of a set counts
// for as long as other waiters have always left it, any other until it is deleted. No ticket counts for ever by mistake.
func TestForHowLongATicketCounts(t *testing.T) {
	assert.Equal(t, 30*time.Second, LastsFor(time.Second, false))
	assert.Equal(t, 90*time.Second, LastsFor(30*time.Second, false))
	row := rowOf(Ticket{Queue: "m", Time: 5, Nonce: "n"})
	for writer, want := range map[string]time.Duration{
		`{"lasts":"30s"}`: 30 * time.Second, `{}`: 0, "": 0, "{": 0, `{"lasts":"soon"}`: 0, `{"lasts":"-1s"}`: 0, `{"v":99,"lasts":"1s"}`: 0,
		`{"set":true}`: time.Minute, `{"set":true,"lasts":"soon"}`: time.Minute, `{"lasts":"99999h"}`: 3 * MaxLease,
	} {
		row.Writer = writer
		got := Tickets("m", []Row{row})
		assert.Equal(t, want, got[0].Lasts, writer)
		assert.False(t, got[0].Expired(row.Heartbeat.Add(want)), writer)
		assert.Equal(t, want > 0, got[0].Expired(row.Heartbeat.Add(want+time.Microsecond)), writer)
		assert.False(t, got[0].Expired(row.Heartbeat.Add(-time.Hour)), writer)
	}
}

// A ticket that was written by hand delays no waiter for longer than any other ticket, and other rows do not count as
// tickets.
func TestNonsenseInATicketIsPassedSoon(t *testing.T) {
	good := rowOf(Ticket{Queue: "m", Time: 5, Nonce: "n", Grace: time.Second})
	for what, row := range map[string]Row{
		"no ticket":           {Name: "!wait/m/x"},
		"no nonce":            {Name: "!wait/m/0000000000000005/"},
		"letters in the time": {Name: "!wait/m/00000000000000a5/n"},
		"another queue":       {Name: "!wait/n/0000000000000005/n"},
	} {
		assert.Empty(t, Tickets("m", []Row{row}), what)
	}
	for what, writer := range map[string]string{"empty": "", "no JSON": "{", "types": `{"grace":5}`, "no time": `{"grace":"soon"}`, "newer": `{"v":99,"grace":"1h"}`} {
		got := Tickets("m", []Row{{Name: good.Name, Writer: writer}})
		if assert.Len(t, got, 1, what) {
			assert.Equal(t, defaultGrace, got[0].Grace, what)
		}
	}
	for grace, want := range map[string]time.Duration{"1h": MaxGrace, "-5s": time.Millisecond, "0s": time.Millisecond, "1s": time.Second} {
		got := Tickets("m", []Row{{Name: good.Name, Writer: fmt.Sprintf(`{"grace":%q,"slots":-3,"ready":true}`, grace)}})
		assert.Equal(t, want, got[0].Grace)
		assert.Zero(t, got[0].Slots)
		assert.False(t, got[0].Ready, "it is no set's")
	}
}

// Of a ticket that can't be read, nothing counts: half of its content could let it wait longer than any other ticket.
func TestOfATicketThatCanNotBeReadNothingCounts(t *testing.T) {
	key := Ticket{Queue: "m", Time: 5, Nonce: "n"}.Row()
	none, _, _ := TicketOf(Row{Name: key, Heartbeat: time.UnixMicro(7)})
	for _, writer := range []string{
		`{"id":7,"set":true,"ready":true,"grace":"5s","lasts":"1h","slots":4,"deference":2,"notify":"x","trip":"1s"}`,
		`{"set":true,"rank":2,"grace":5,"lasts":"1h"}`, `{"v":"1","id":"me","rank":3}`,
		`{"v":2,"id":"me","grace":"5s","lasts":"1h","set":true,"rank":3}`, `[{"id":"me"}]`, `{"id":"me"`, "null", "7",
	} {
		got, prefix, ok := TicketOf(Row{Name: key, Writer: writer, Heartbeat: time.UnixMicro(7)})
		assert.True(t, ok, writer)
		assert.Equal(t, QueuePrefix("m"), prefix)
		assert.Equal(t, none, got, writer)
	}
	assert.Equal(t, Ticket{Queue: "m", Time: 5, Nonce: "n", Grace: defaultGrace, Beat: time.UnixMicro(7)}, none)
}

// The key of a ticket is read exactly if it is one, and the name of a queue is not made up from a hash.
func TestOnlyTheKeyOfATicketIsRead(t *testing.T) {
	hashed := strings.Repeat("m", MaxName)
	for key, want := range map[string]struct {
		ok    bool
		queue string
		time  Token
		nonce string
	}{
		"!wait/m/0000000000000005/n":                     {true, "m", 5, "n"},
		"!wait/a%2Fb/1700000000000000/n/x":               {true, "a/b", 1_700_000_000_000_000, "n/x"},
		Ticket{Queue: hashed, Time: 9, Nonce: "n"}.Row(): {true, "", 9, "n"},
		"!wait/%zz/0000000000000005/n":                   {true, "", 5, "n"},
		"!wait/m/0000000000000005/":                      {},
		"!wait/m/0000000000000005":                       {},
		"!wait/m/000000000000005/n":                      {},
		"!wait/m/00000000000000005/n":                    {},
		"!wait/m/00000000000000a5/n":                     {},
		"!wait/m/-000000000000005/n":                     {},
		"!wait/":                                         {},
		"wait/m/0000000000000005/n":                      {},
		"m/0000000000000005/n":                           {},
		"m":                                              {},
	} {
		got, prefix, ok := TicketOf(Row{Name: key, Writer: `{"id":"me"}`})
		assert.Equal(t, want.ok, ok, key)
		assert.Equal(t, want.ok, prefix != "", key)
		assert.Equal(t, [3]any{want.queue, want.time, want.nonce}, [3]any{got.Queue, got.Time, got.Nonce}, key)
		if ok {
			assert.True(t, strings.HasPrefix(key, prefix), key)
		}
	}
}
