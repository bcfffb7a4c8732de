package agent

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/lock"
)

// Each parameter of a request reaches the field that it is for, and a parameter that is left out has its documented default. A program
// would otherwise hold its lock on other terms than it asked for, and never learn it.
func TestEveryParameterIsRead(t *testing.T) {
	usual := func(kind string) request {
		return request{kind: kind, names: []string{"a"}, lease: 10 * time.Second, priority: 9}
	}
	for _, c := range []struct {
		kind, query string
		want        func(*request)
	}{
		{locks, "", func(*request) {}},
		{locks, "name=b", func(r *request) { r.names = []string{"a", "b"} }},
		{locks, "lease=1m30s", func(r *request) { r.lease = 90 * time.Second }},
		{locks, "wait=7s", func(r *request) { r.wait = 7 * time.Second }},
		{locks, "wait=0", func(r *request) { r.try = true }},
		{locks, "wait=0s", func(r *request) { r.try = true }},
		{locks, "wait=", func(*request) {}},
		{locks, "stall=3s", func(r *request) { r.stall = 3 * time.Second }},
		{locks, "eof=release", func(r *request) { r.releasesAtEOF = true }},
		{locks, "eof=", func(*request) {}},
		{locks, "label=job&value=text", func(r *request) { r.label, r.value = "job", "text" }},
		{elections, "", func(*request) {}},
		{elections, "priority=0", func(r *request) { r.priority = 0 }},
		{elections, "priority=4&handover=true", func(r *request) { r.priority, r.handover = 4, true }},
		{semaphores, "slots=3", func(r *request) { r.slots = 3 }},
		{onces, "key=k", func(r *request) { r.due = lock.KeyOf("k") }},
		{onces, "every=24h", func(r *request) { r.every, r.due = 24*time.Hour, lock.Every(24*time.Hour, 450*time.Second) }},
		{onces, "every=30m", func(r *request) { r.every, r.due = 30*time.Minute, lock.Every(30*time.Minute, 450*time.Second) }},
		{onces, "every=29m", func(r *request) { r.every, r.due = 29*time.Minute, lock.Every(29*time.Minute, 0) }},
		{onces, "every=24h&offset=3h", func(r *request) { r.every, r.due = 24*time.Hour, lock.Every(24*time.Hour, 3*time.Hour) }},
		{onces, "every=24h&offset=0s", func(r *request) { r.every, r.due = 24*time.Hour, lock.Every(24*time.Hour, 0) }},
	} {
		q, err := url.ParseQuery("name=a&" + c.query)
		require.NoError(t, err)
		got, bad := parse(c.kind, q)
		require.Nil(t, bad, "%s?%s", c.kind, c.query)
		want := usual(c.kind)
		c.want(&want)
		assert.Equal(t, want, *got, "%s?%s", c.kind, c.query)
	}
}

// The smallest and the largest value of each parameter is accepted. Any other value is refused, with the value and what is allowed:
// nobody has to guess which of the parameters of a request is wrong.
func TestEveryParameterHasItsLimits(t *testing.T) {
	for _, c := range []struct {
		kind, query string
		says        string // "": it is accepted
	}{
		{locks, "lease=100ms", ""},
		{locks, "lease=99ms", "lease=99ms must be at least 100ms"},
		{locks, "lease=24h", ""},
		{locks, "lease=24h0m1s", "lease=24h0m1s must be at least 100ms and at most"},
		{locks, "lease=0s", "lease=0s must be"},
		{locks, "lease=-1s", "lease=-1s must be a duration"},
		{locks, "stall=-1s", "stall=-1s must be a duration"},
		{locks, "stall=x", "stall=x must be a duration"},
		{locks, "wait=x", "wait=x must be a duration"},
		{locks, "eof=true", "eof=true must be release or left out"},
		{locks, "value=" + strings.Repeat("x", 64<<10), ""},
		{locks, "value=" + strings.Repeat("x", 64<<10+1), "at most 65536 bytes long; it has 65537 bytes"},
		{locks, "value=%ff", "valid UTF-8"},
		{elections, "priority=0", ""},
		{elections, "priority=9", ""},
		{elections, "priority=10", "priority=10 must be a number from 0 to 9"},
		{elections, "priority=-1", "priority=-1 must be a whole number, 0 or higher"},
		{elections, "priority=1.5", "priority=1.5 must be a whole number, 0 or higher"},
		{elections, "handover=yes", "handover=yes must be true or left out"},
		{semaphores, "slots=1", ""},
		{semaphores, "slots=1000", ""},
		{semaphores, "slots=0", "slots=0 must be a number from 1 to 1000"},
		{semaphores, "slots=1001", "slots=1001 must be a number from 1 to 1000"},
		{semaphores, "slots=-1", "slots=-1 must be a whole number, 0 or higher"},
		{onces, "every=1s", ""},
		{onces, "every=999ms", "whole seconds"},
		{onces, "every=1h&offset=59m59s", ""},
		{onces, "every=1h&offset=1h", "less than the period"},
		{onces, "every=1h&offset=1.5s", "whole seconds"},
		{onces, "every=-1h", "every=-1h must be a duration"},
		{onces, "key=" + strings.Repeat("x", 1024), ""},
		{onces, "key=" + strings.Repeat("x", 5000), "key"},
		{onces, "key=%ff", "UTF-8"},
		{onces, "", "give either every=, for a schedule, or key=, for a single run"},
		{onces, "every=1h&key=k", "give either every="},
		{onces, "key=k&offset=0s", "offset= is only for schedules"},
		{elections, "slots=1", `unknown parameter "slots": /v1/elections takes name,`},
		{locks, "wait=1s&wait=2s", "the parameter wait was given 2 times"},
	} {
		q, err := url.ParseQuery("name=a&" + c.query)
		require.NoError(t, err)
		_, bad := parse(c.kind, q)
		if c.says == "" {
			assert.Nil(t, bad, "%s?%.80s", c.kind, c.query)
		} else if assert.NotNil(t, bad, "%s?%.80s", c.kind, c.query) {
			assert.Contains(t, bad.Detail, c.says, "%s?%.80s", c.kind, c.query)
			assert.Equal(t, 400, bad.Status)
		}
	}
	for _, c := range []struct {
		query string
		kinds []string // for which it is enough
	}{
		{"", nil},
		{"name=a", []string{locks, elections}},
		{"name=a&name=b", []string{locks}},
		{"name=a&slots=1", []string{semaphores}},
		{"name=a&name=b&slots=1", nil},
		{"name=a&key=k", []string{onces}},
		{"name=a&name=b&key=k", nil},
		{"name=a&key=k&slots=1", nil},
	} {
		for _, kind := range []string{locks, elections, semaphores, onces} {
			q, _ := url.ParseQuery(c.query)
			_, bad := parse(kind, q)
			assert.Equal(t, slices.Contains(c.kinds, kind), bad == nil, "%s?%s", kind, c.query)
		}
	}
	_, bad := parse(locks, url.Values{"name": {"a", ""}})
	assert.NotNil(t, bad, "each name is checked")
}
