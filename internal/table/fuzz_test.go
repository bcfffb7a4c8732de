package table

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// If a name is accepted, Spanner accepts it too, and it can't be mistaken for the lease row of a different lock.
func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "mylock", "mylock_1700000000000000", "mylock_12", "_0000000000000000", "a_b_1234567890123456", "\xff", "ä_12345678901234567", "x_1234567890123456\n",
		"a\x00", "a\nb", "a\x1b[31m", "a\x7f", "a\u0085b", "a\u2028b", "a\u202etxt", "a\u2066b", "Zürich 東京 \u200d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
			t.Errorf("%q was accepted", name)
		}
		if quoted := strconv.QuoteToASCII(name); regexp.MustCompile(`\\(x|[abfnrtv]|u(00[0189]|202[89a-e]|206[6-9]))`).MatchString(strings.ReplaceAll(quoted, `\\`, "")) {
			t.Errorf("%q was accepted, and acts on a terminal or breaks a line", name)
		}
		if role, lock := RoleOf(name); role != OfLock || lock != name {
			t.Errorf("%q was accepted and is a row of %q", name, lock)
		}
	})
}

// A lease row belongs to one lock and one token, and its key is in the ranges that are read for that lock.
func FuzzLeaseKey(f *testing.F) {
	f.Add("mylock", int64(1700000000000000))
	f.Add("mylock_1", int64(0))
	f.Add("a_b", int64(9999999999999999))
	f.Fuzz(func(t *testing.T, name string, micros int64) {
		if micros <= 0 || micros > 9999999999999999 || CheckName(name) != nil {
			return
		}
		token := Token(micros)
		key := LeaseKey(name, token)
		if role, lock := RoleOf(key); role != OfLease || lock != name || tokenOf(key) != token {
			t.Errorf("%q is not the lease row of %q under %d", key, name, token)
		}
		if r := WithLeases([]string{name}, token.Time()).Ranges[0]; key < r.From || key > r.To && micros < 9999999999999999-int64(24*time.Hour/time.Microsecond) {
			t.Errorf("%q is not among %v", key, r)
		}
		if CheckName(key) == nil {
			t.Errorf("%q is a lease row and was accepted as a name", key)
		}
	})
}

// A record that a holder wrote is read back unchanged. Any other record is rejected or has a lease within the limits.
func FuzzLeaseRecord(f *testing.F) {
	for _, s := range []string{"", `{"lease":"10s"}`, `{"lease":"10s","value":"http://10.0.0.7:8080"}`, `{"lease":"-1s"}`, `{"lease":"25h"}`, `{"lease":1}`, `[]`, `{"lease":"1ns","slots":-1}`, `{"lease":"1s","deference":-7}`,
		`{"with":"a/member/0001_1700000000000000","for":"10s"}`, `{"with":"a/member/1_1700000000000000","for":"10s"}`, `{"with":"a/member/0001_1700000000000000","lease":"10s"}`,
		`{"v":1,"lease":"10s"}`, `{"v":2,"lease":"10s"}`, `{"v":2,"lease":10,"id":{}}`, `{"v":-1,"lease":"10s"}`, `{"v":"2","lease":"10s"}`, `{"v":1e3,"lease":"10s"}`} {
		f.Add(s, int64(time.Second), "value", "id", 1)
	}
	f.Add("", int64(MaxLease-1), strings.Repeat("\x00", MaxValue), strings.Repeat("\x00", MaxID), MaxRank)
	f.Fuzz(func(t *testing.T, s string, lease int64, value, id string, rank int) {
		if p, err := decodeLeaseRecord(Row{Writer: s}); err == nil && (p.Lease <= 0 || p.Lease > MaxLease) {
			t.Errorf("%q was read as %v", s, p)
		}
		if lease <= 0 || lease > int64(MaxLease) || !utf8.ValidString(value) || !utf8.ValidString(id) {
			return
		}
		p := LeaseRecord{Lease: time.Duration(lease), ID: id, Value: value, Slots: 1000, AcceptsHandover: true, Rank: min(max(rank, 0), MaxRank),
			ListDigest: "1/0123456789abcdef", Since: 1700000000000000}
		if n := utf8.RuneCountInString(p.encode()); len(value) <= MaxValue && len(id) <= MaxID && n > MaxWriter {
			t.Errorf("a value of %d bytes and an id of %d take %d characters, and a table needs to have only %d", len(value), len(id), n, MaxWriter)
		}
		if back, err := decodeLeaseRecord(Row{Writer: p.encode()}); err != nil || back != p {
			t.Errorf("%v was read back as %v, %v", p, back, err)
		}
		if _, err := decodeLeaseRecord(Row{Writer: strings.Replace(p.encode(), `"v":1`, `"v":2`, 1)}); !errors.Is(err, ErrNewer) {
			t.Errorf("%v in a newer format: %v", p, err)
		}
		with := LeaseRecord{Lease: time.Duration(lease), With: LeaseKey(SlotName("g"+id, 7), 1700000000000000)}
		if back, err := decodeLeaseRecord(Row{Writer: with.encode()}); err != nil || back != with {
			t.Errorf("%v was read back as %v, %v", with, back, err)
		}
	})
}

// If a table's name is accepted, SQL can't interpret it as anything but a name.
func FuzzCheckTable(f *testing.F) {
	for _, s := range []string{"locktable", "a.b", "a b", "1a", "a;b", "a\n", "`a`", ""} {
		f.Add(s)
	}
	plain := regexp.MustCompile(`\A\w+(\.\w+)?\z`)
	f.Fuzz(func(t *testing.T, s string) {
		if CheckTable(s) == nil && (!plain.MatchString(s) || strings.ContainsAny(s[:1], "0123456789")) {
			t.Errorf("%q was accepted", s)
		}
	})
}
