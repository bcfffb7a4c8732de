package agent

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

// The kinds of holds, as they appear in paths. The descriptions in openapi.json are generated from the comments on
// paths, parameters, events and keys in this package.
const (
	locks      = "locks"      // a mutex; with several names, all of the locks or none
	elections  = "elections"  // leadership, for one term
	semaphores = "semaphores" // one of the slots of a semaphore
	onces      = "once"       // one run for each time of a schedule (every), or a single run for a key (key)
)

// request is what a program asks for.
type request struct {
	kind  string
	names []string
	lease time.Duration
	try   bool
	wait  time.Duration // how long to wait, unless try is set; 0: forever
	stall time.Duration // how long the program may leave its lines unread; 0: forever
	label string        // what the program calls itself
	value string

	releasesAtEOF bool

	slots    int           // of a semaphore
	priority int           // of an election
	handover bool          // of an election
	due      lock.Key      // of work that is done once
	every    time.Duration // the period of its schedule, or 0
}

// elector returns the options that only elections take.
func (r *request) elector() []spindle.Option {
	opts := []spindle.Option{spindle.WithPriority(r.priority)}
	if r.handover {
		opts = append(opts, spindle.WithHandover())
	}
	return opts
}

// parameters lists the parameters of each kind, in addition to those in everyKind.
var parameters = map[string][]string{
	locks: {},
	elections: {
		"priority", // from 0 to 9, which is the highest and the default
		"handover", // true: the other candidates are told before the leader stops, so that one of them leads sooner
	},
	semaphores: {
		"slots", // the number of slots, from 1 to 1000; required
	},
	onces: {
		"every",  // the period of the schedule, such as 24h
		"offset", // the offset of the scheduled times from 0:00 UTC; the default is 0, or 7m30s for periods of half an hour or more
		"key",    // the key of a single run
	},
}

var everyKind = []string{
	"name",  // the name of the lock; required
	"lease", // how long a program keeps the lock after its agent has failed; the default is 10s
	"wait",  // how long to wait, such as 30s; the default is forever; with 0, the HTTP status says whether the lock was acquired
	"eof",   // release: closing the connection releases the lock, even if the process is still running
	"stall", // the program loses the lock if it has not read its lines for this long, at least 100ms; the default is never
	"label", // what the program is called in spindle ls; the default is its command
	"value", // text that others see next to the holder
}

// parse reads the parameters of a request.
func parse(kind string, q url.Values) (*request, *problem) {
	allowed := append(slices.Clone(everyKind), parameters[kind]...)
	for _, given := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(allowed, given):
			return nil, wrong(http.StatusBadRequest, "unknown-parameter", "unknown parameter %.64q: /v1/%s takes %s", given, kind, strings.Join(allowed, ", "))
		case len(q[given]) > 1 && given != "name":
			return nil, wrong(http.StatusBadRequest, "bad-parameter", "the parameter %s was given %d times, but is allowed only once", given, len(q[given]))
		}
	}
	p := &parser{q: q}
	r := &request{kind: kind, names: q["name"], label: q.Get("label"), value: q.Get("value"), priority: table.MaxRank}
	r.lease = p.duration("lease", options.DefaultLease)
	r.wait = p.duration("wait", 0)
	r.try = q.Get("wait") != "" && r.wait == 0
	r.stall = p.duration("stall", 0)
	r.releasesAtEOF = p.choice("eof", "release")
	r.handover = p.choice("handover", "true")
	r.priority = p.number("priority", table.MaxRank)
	r.slots = p.number("slots", 0)
	if kind == onces {
		p.once(r)
	}
	p.limits(r)
	p.names(r)
	if p.wrong != nil {
		return nil, p.wrong
	}
	return r, nil
}

// parser reads parameters, and keeps the first error.
type parser struct {
	q     url.Values
	wrong *problem
}

func (p *parser) refuse(format string, args ...any) {
	if p.wrong == nil {
		p.wrong = wrong(http.StatusBadRequest, "bad-parameter", format, args...)
	}
}

func (p *parser) duration(name string, otherwise time.Duration) time.Duration {
	given := p.q.Get(name)
	if given == "" {
		return otherwise
	}
	d, err := time.ParseDuration(given)
	if err != nil || d < 0 {
		p.refuse("%s=%.64s must be a duration, 0 or longer, such as 10s, 500ms or 1m30s", name, given)
		return otherwise
	}
	return d
}

func (p *parser) number(name string, otherwise int) int {
	given := p.q.Get(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 0 {
		p.refuse("%s=%.64s must be a whole number, 0 or higher", name, given)
	}
	return n
}

// choice reports whether a parameter is set. The only allowed setting is value.
func (p *parser) choice(name, value string) bool {
	given := p.q.Get(name)
	if given != "" && given != value {
		p.refuse("%s=%.64s must be %s or left out", name, given, value)
	}
	return given == value
}

// limits checks values that the library would otherwise refuse with errors about its Go options.
func (p *parser) limits(r *request) {
	switch {
	case r.lease < 100*time.Millisecond || r.lease > table.MaxLease:
		p.refuse("lease=%v must be at least 100ms and at most %v", r.lease, table.MaxLease)
	case r.stall > 0 && r.stall < 100*time.Millisecond:
		p.refuse("stall=%v must be at least 100ms; leave it out if the program may leave its lines unread", r.stall)
	case len(r.value) > table.MaxValue || !utf8.ValidString(r.value):
		p.refuse("value= must be valid UTF-8 and at most %d bytes long; it has %d bytes", table.MaxValue, len(r.value))
	case r.kind == elections && r.priority > table.MaxRank:
		p.refuse("priority=%d must be a number from 0 to %d", r.priority, table.MaxRank)
	case r.kind == semaphores && (r.slots < 1 || r.slots > 1000):
		p.refuse("slots=%d must be a number from 1 to 1000", r.slots)
	}
}

// once parses the parameters of work that is done once.
func (p *parser) once(r *request) {
	key, every := p.q.Get("key"), p.duration("every", 0)
	switch {
	case (key == "") == (every == 0):
		p.refuse("give either every=, for a schedule, or key=, for a single run")
		return
	case key != "" && p.q.Has("offset"):
		p.refuse("offset= is only for schedules: leave it out, or give every= instead of key=")
		return
	case key != "":
		if err := table.CheckDone(key); err != nil {
			p.refuse("%v", err)
		}
		r.due = lock.KeyOf(key)
		return
	}
	t := table.Tick{Period: every, Offset: p.duration("offset", table.UsualOffset(every)), Nearest: true}
	if err := t.Check(); err != nil {
		p.refuse("%v", err)
	}
	r.due, r.every = lock.Every(t.Period, t.Offset), every
}

func (p *parser) names(r *request) {
	if len(r.names) != 1 && r.kind != locks || len(r.names) == 0 {
		p.refuse("/v1/%s needs one name=, but was given %d names", r.kind, len(r.names))
		return
	}
	for _, name := range r.names {
		if err := table.CheckName(name); err != nil {
			p.refuse("%v", err)
		}
	}
}
