package table_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// written says what a step makes of the rows of a lock called m. Each row is given as heartbeat, token and writer. T is the token
// before the step, "then" the time of the confirmation or the release, "now" that of the step's commit, and C the token that a claim
// has chosen.
type written struct {
	after string
	also  bool // the step makes the writes of And
	act   func(s scene, token table.Token) (chosen table.Token, err error)
}

// plain is a step that returns only an error.
func plain(act func(s scene, token table.Token) error) func(scene, table.Token) (table.Token, error) {
	return func(s scene, token table.Token) (table.Token, error) { return 0, act(s, token) }
}

// Processes of other versions, operators and later terms read each column of each row that a step leaves, so a step writes all of
// them, for every lock, and nothing else. What And adds is part of the commit, also of a second one: a ticket or a record that was
// left out would block a queue, or let work run twice.
func TestEachStepLeavesExactlyItsRows(t *testing.T) {
	const record = `{"v":1,"lease":"1h0m0s","notify":"to m_T"}`
	const lease, free = "m_T: then T " + record, "m_T+1: now T+1 " + `{"v":1,"lease":"1h0m0s","free":true}`
	const done = `m!done: now T {"v":1,"done":"7","by":"me"}`
	steps := map[string]map[string]written{
		"absent": {"Claim": {"m: now now me", true, func(s scene, _ table.Token) (table.Token, error) {
			return s.Claim(s.Context(), "me", s.look()...)
		}}},
		"claimed": {
			"Confirm": {"m: now T me; m_T: now T " + record, false, plain(func(s scene, token table.Token) error {
				return s.Confirm(s.Context(), token, table.LeaseRecord{Lease: time.Hour}, s.names...)
			})},
			"Withdraw": {"m: - now me", false, plain(func(s scene, token table.Token) error { return s.Withdraw(s.Context(), token, s.names...) })},
			"Disown":   {"m: - now me", false, plain(func(s scene, token table.Token) error { return s.Disown(s.Context(), "me", s.look()...) })},
			"Claim":    {"m: now now you", true, func(s scene, _ table.Token) (table.Token, error) { return s.Claim(s.Context(), "you", s.look()...) }},
			"Prune": {"", false, plain(func(s scene, _ table.Token) error {
				n, err := s.Prune(s.Context(), s.look()...)
				assert.Len(s, s.names, n)
				return err
			})},
		},
		"held": {
			"Heartbeat": {"m: now T me; " + lease, false, plain(func(s scene, token table.Token) error { return s.Heartbeat(s.Context(), token, s.names...) })},
			"Announce":  {"m: then T ; " + lease, false, plain(func(s scene, token table.Token) error { return s.Announce(s.Context(), token, s.names...) })},
			"Succeed": {"m: then T \nyou; " + lease, false, plain(func(s scene, token table.Token) error {
				return s.Succeed(s.Context(), "you", s.names[0], token)
			})},
			"Ask by an operator": {"m: then T me; m_T: then - " + record, false, plain(func(s scene, token table.Token) error {
				return s.Ask(s.Context(), table.ByOperator, s.names[0], token)
			})},
			"Ask by preference": {"m: then T me; m_T: - T " + record, false, plain(func(s scene, token table.Token) error {
				return s.Ask(s.Context(), table.ByPreference, s.names[0], token)
			})},
			"Withdraw": {"m: - now me", false, plain(func(s scene, token table.Token) error { return s.Withdraw(s.Context(), token, s.names...) })},
			"Claim":    {"m: now now you", true, func(s scene, _ table.Token) (table.Token, error) { return s.Claim(s.Context(), "you", s.look()...) }},
			"Release":  {"m: - now ", true, plain(func(s scene, token table.Token) error { return s.Release(s.Context(), token, s.names...) })},
			"ReleaseFree": {"m: - T+1 ; " + free, true, plain(func(s scene, token table.Token) error {
				return s.ReleaseFree(s.Context(), token, time.Hour, s.names...)
			})},
			"Finish": {"m: - now ; " + done, true, plain(func(s scene, token table.Token) error {
				return s.Finish(s.Context(), token, 0, s.names[0], table.Due{Key: "7"}, "me")
			})},
			"Finish with a free row": {"m: - T+1 ; " + done + "; " + free, true, plain(func(s scene, token table.Token) error {
				return s.Finish(s.Context(), token, time.Hour, s.names[0], table.Due{Key: "7"}, "me")
			})},
			"Record": {"m: then T me; " + done + "; " + lease, false, plain(func(s scene, token table.Token) error {
				return s.Store.Commit(s.Context(), "record", table.Record(s.names[0], token, table.Due{Key: "7"}, "me"))
			})},
			"Break": {"m: - now ; m!broken: now T ", false, plain(func(s scene, token table.Token) error { return s.Break(s.Context(), token, s.names[0]) })},
			"Break, and Prune": {"", false, plain(func(s scene, token table.Token) error {
				require.NoError(s, s.Break(s.Context(), token, s.names[0]))
				_, err := s.Prune(s.Context(), s.look()[:1]...)
				return err
			})},
			"EvictMembers": {"m: - now ", false, plain(func(s scene, _ table.Token) error { _, err := s.EvictMembers(s.Context(), s.look()...); return err })},
		},
		"held, and the key of a free row is in use": {
			"ReleaseFree": {"m: - now ; m_T+1: - - ", true, plain(func(s scene, token table.Token) error {
				return s.ReleaseFree(s.Context(), token, time.Hour, s.names...)
			})},
			"Finish with a free row": {"m: - now ; " + done + "; m_T+1: - - ", true, plain(func(s scene, token table.Token) error {
				return s.Finish(s.Context(), token, time.Hour, s.names[0], table.Due{Key: "7"}, "me")
			})},
		},
		"free": {
			"Claim": {"m: now now you", true, func(s scene, _ table.Token) (table.Token, error) { return s.Claim(s.Context(), "you", s.look()...) }},
			"ClaimFree": {`m: now C you; m_C: now C {"v":1,"lease":"1m0s","nonce":"n","notify":"to m_C"}`, true, func(s scene, _ table.Token) (table.Token, error) {
				claim, ok := table.NewFreeClaim("you", table.LeaseRecord{Lease: time.Minute, Nonce: "n"}, s.look()...)
				require.True(s, ok)
				return claim.Token, s.ClaimFree(s.Context(), claim)
			}},
			"Retract": {`m: - T+1 ; m_T+1: then T+1 {"v":1,"lease":"1m0s","free":true}`, false, plain(func(s scene, _ table.Token) error {
				claim, ok := table.NewFreeClaim("you", table.LeaseRecord{Lease: time.Minute, Nonce: "n"}, s.look()[:1]...)
				require.True(s, ok)
				return s.Retract(s.Context(), claim)
			})},
			"Prune": {"", false, plain(func(s scene, _ table.Token) error { _, err := s.Prune(s.Context(), s.look()...); return err })},
		},
	}
	alone := []string{"Succeed", "Ask by an operator", "Ask by preference", "Finish", "Finish with a free row", "Record", "Break", "Break, and Prune", "Retract"}
	for from, all := range steps {
		for what, step := range all {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				tab := table.Table{Store: store, Notify: func(row string) string { return "to " + row }}
				s := scene{t, store, tab, []string{"lock-a", "lock-b"}}
				var token table.Token
				if from != "absent" {
					token = s.claim()
					time.Sleep(time.Second)
				}
				if from != "absent" && from != "claimed" {
					require.NoError(t, s.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Hour}, s.names...))
				}
				for _, name := range s.names {
					if strings.HasSuffix(from, "in use") {
						require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: table.LeaseKey(name, token+1)}}))
					}
				}
				if from == "free" {
					time.Sleep(time.Second)
					require.NoError(t, s.ReleaseFree(t.Context(), token, time.Hour, s.names...))
					token++
				}
				var then, now time.Time
				store.OnCommit = func(_ string, at time.Time, _, _ map[string]table.Row) { now = at }
				for _, row := range store.Rows() {
					if row.Heartbeat.After(then) {
						then = row.Heartbeat
					}
				}
				time.Sleep(time.Minute)
				second := s.rowsOf("lock-b")
				s.Table = tab.And(table.Write{Kind: table.Put, Name: "beside"})
				chosen, err := step.act(s, token)
				require.NoError(t, err, "%s, %s", from, what)
				said := strings.NewReplacer(digits(table.TokenAt(now)), "now", digits(token), "T", digits(token+1), "T+1", digits(table.TokenAt(then)), "then", digits(chosen), "C")
				for i, name := range s.names {
					if rows := s.rowsOf(name); i == 1 && slices.Contains(alone, what) {
						assert.Equal(t, second, rows, "%s, %s", from, what)
					} else {
						assert.Equal(t, step.after, strings.ReplaceAll(said.Replace(text(rows)), name, "m"), "%s, %s", from, what)
					}
				}
				assert.Equal(t, step.also, len(s.rowsOf("beside")) == 1, "%s, %s", from, what)
			})
		}
	}
}

func digits(token table.Token) string { return fmt.Sprintf("%016d", token) }

// text returns the content of rows, in the order of their keys.
func text(rows map[string]table.Row) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		at := func(t time.Time) string {
			if t.IsZero() {
				return "-"
			}
			return digits(table.TokenAt(t))
		}
		all = append(all, fmt.Sprintf("%s: %s %s %s", key, at(rows[key].Heartbeat), at(rows[key].Token), rows[key].Writer))
	}
	return strings.Join(all, "; ")
}
