package table

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled returns a value each of whose fields says something.
func filled[T any](t *testing.T) (v T) {
	of := reflect.ValueOf(&v).Elem()
	for i := range of.NumField() {
		switch f := of.Field(i); f.Interface().(type) {
		case string, LockKind:
			f.SetString(of.Type().Field(i).Name)
		case bool:
			f.SetBool(true)
		case time.Duration:
			f.SetInt(int64(time.Duration(i+1) * time.Second / 8))
		case time.Time:
			f.Set(reflect.ValueOf(time.UnixMicro(int64(i) + 1)))
		default:
			f.SetInt(int64(i%MaxRank) + 1)
		}
	}
	return v
}

// Every field of a record is read as it was written, whoever reads it, and only numbers that no program writes are brought within their
// limits: a field that is lost would change whose turn it is, or what a group knows of a member.
func TestEachFieldOfARowIsReadBack(t *testing.T) {
	p := filled[LeaseRecord](t)
	p.With = ""
	back, err := decodeLeaseRecord(Row{Writer: p.encode()})
	require.NoError(t, err)
	assert.Equal(t, p, back)
	of := filled[LeaseRecord](t)
	of.With = LeaseKey(SlotName("orders", 7), 5)
	back, err = decodeLeaseRecord(Row{Writer: of.encode()})
	require.NoError(t, err)
	assert.Equal(t, of, back)
	of.With = strings.Replace(of.encode(), `"for"`, `"lease"`, 1)
	back, err = decodeLeaseRecord(Row{Writer: of.With})
	require.NoError(t, err)
	assert.Empty(t, back.With, "a row with a lease of its own is no partition's")
	ticket := filled[Ticket](t)
	got, _, ok := TicketOf(Row{Name: ticket.Row(), Heartbeat: ticket.Beat, Writer: ticket.Put().Set[2].Value.(string)})
	assert.True(t, ok)
	assert.Equal(t, ticket, got)
	assert.Equal(t, []Kind{Put, Update}, []Kind{ticket.Put().Kind, ticket.Renew().Kind}, "a renewal that is late brings no ticket back")
	d := Done{Due: Due{"7", time.Hour}, By: "me", Token: 9, At: time.UnixMicro(11)}
	w := record("m", d.Token, d.Due, d.By)
	done, err := decodeDone(Row{Name: w.Name, Heartbeat: d.At, Token: w.Set[1].Value.(time.Time), Writer: w.Set[2].Value.(string)})
	require.NoError(t, err)
	assert.Equal(t, d, done)

	for n, want := range map[int][2]int{-1: {}, 0: {}, MaxRank: {MaxRank, MaxRank}, MaxRank + 1: {MaxRank, MaxRank + 1}, MaxWeight: {MaxRank, MaxWeight}, MaxWeight + 1: {MaxRank, MaxWeight}} {
		back, err := decodeLeaseRecord(Row{Writer: fmt.Sprintf(`{"lease":"1s","deference":%d,"weight":%d}`, n, n)})
		require.NoError(t, err)
		assert.Equal(t, want, [2]int{back.Rank, back.Weight}, n)
		got, _, _ := TicketOf(Row{Name: ticket.Row(), Writer: fmt.Sprintf(`{"rank":%d}`, n)})
		assert.Equal(t, want[0], got.Rank, n)
	}
	for d, want := range map[time.Duration][2]time.Duration{-1: {}, 0: {}, MaxGrace: {MaxGrace, MaxGrace}, MaxGrace + 1: {MaxGrace + 1, MaxGrace}, MaxKeep: {MaxKeep, MaxGrace}, MaxKeep + 1: {MaxKeep, MaxGrace}} {
		back, err := decodeLeaseRecord(Row{Writer: fmt.Sprintf(`{"lease":"1s","keep":"%v"}`, d)})
		require.NoError(t, err)
		assert.Equal(t, want[0], back.Keep, d)
		got, _, _ := TicketOf(Row{Name: ticket.Row(), Writer: fmt.Sprintf(`{"trip":"%v"}`, d)})
		assert.Equal(t, want[1], got.RoundTrip, d)
	}
}

// writer notes the text that a step writes.
type writer struct {
	Store
	said string
}

func (w *writer) Commit(_ context.Context, _ string, writes []Write) error {
	w.said = writes[len(writes)-1].Set[0].Value.(string)
	return nil
}

// A member that changes its weight changes nothing else of what its row says, nor of what it has observed.
func TestAChangeOfWeightChangesNothingElse(t *testing.T) {
	p, w := filled[LeaseRecord](t), &writer{}
	p.With = ""
	want, seen := p, p
	want.Weight = 77
	require.NoError(t, Table{Store: w}.Weigh(t.Context(), Observation{Name: "m", Token: 5, LeaseRecord: &seen}, 77))
	got, err := decodeLeaseRecord(Row{Writer: w.said})
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, p, seen)
}

// An error about a lease record that can't be read is shown and logged, and must not give away how its writer can be notified.
func TestAnErrorAboutARecordDoesNotShowItsSecret(t *testing.T) {
	for _, says := range []string{`{"lease":"1y","notify":"10.0.0.7:9 hush"}`, `{"notify" : "hush","lease":7}`, `{"notify":"hush`, `{"v":2,"notify":"hush"}`} {
		_, err := decodeLeaseRecord(Row{Name: "m_0000000000000005", Writer: says})
		require.Error(t, err, says)
		assert.False(t, strings.Contains(err.Error(), "hush"), "%v", err)
	}
}
