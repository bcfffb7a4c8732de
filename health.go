package spindle

import (
	"errors"
	"io"
	"net/http"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Health returns nil if this Lock competes for the lock or holds it, and has succeeded within the time limit: three
// lease durations, or 10 s if that is longer. A follower succeeds if it polls the lock, and claims the lock when it is
// free. A leader succeeds if a heartbeat is acknowledged. A leader in jeopardy is therefore still healthy, and a short
// outage of Spanner does not make a Lock unhealthy. Changes to the wall clock don't matter. On most systems, time
// during which the machine was suspended is not counted.
//
// An error from Health says what is wrong and since when. The possible reasons are that requests to Spanner fail, that
// a free lock can't be claimed, and that the leader function has not returned within the time limit after its ctx was
// canceled. Health also returns an error while Run is not active.
//
// Health makes no RPC, and may be called from any goroutine.
func (l *Lock) Health() error {
	if l.err != nil {
		return l.err
	}
	v := l.view.Load() // before the age, because the pulse beats before the end of a term is published
	age, runs := l.runs.Age(l.config.Clock)
	if !runs {
		return l.wrap("health", errors.New("not competing for the lock, because Run was not called or has ended"))
	}
	what := "polls or claims of the lock have been failing"
	if v.term != nil {
		what, age = "no heartbeat has been acknowledged", v.term.Silence()
		if v.canceled != (elect.Instant{}) {
			if hung := l.config.Clock.Now().Ran(v.canceled); hung > age {
				what, age = "the leader function was told to stop but has not returned", hung
			}
		}
	}
	if err := l.runs.Check(l.config.Clock, l.config.Lease, age, what); err != nil {
		return l.wrap("health", err)
	}
	return nil
}

// Live returns the result of Health. Use it as a liveness probe, because a restart helps if the leader function hangs
// or if the Spanner client has lost its session. The probe also succeeds on followers.
func (l *Lock) Live(*http.Request) error { return l.Health() }

// Leading returns nil while HasLock returns true, and an error otherwise. Use it as a readiness probe if only the
// leader should receive requests. After a change of leader, requests may still go to the old leader until its next
// probe.
func (l *Lock) Leading(*http.Request) error {
	if l.err != nil {
		return l.err
	}
	if leads, _ := l.HasLock(); !leads {
		return l.wrap("probe", ErrNotLeader)
	}
	return nil
}

// Probe makes an http.Handler from Live or Leading. The handler replies with status 200 if the probe succeeds, and with
// status 503 and the error if it fails. With controller-runtime, pass Live or Leading directly, because they have the
// signature of healthz.Checker.
type Probe func(*http.Request) error

// ServeHTTP implements http.Handler.
func (p Probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p(r); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}
