package spindle

import (
	"errors"
	"io"
	"net/http"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Health returns nil as long as this Lock competes for the lock or keeps it, and its last success is less than three
// leases old, or less than 10 s if that is longer. For a follower, a success is a look at the lock, including the claim
// if the lock was free; for a leader, it is an acknowledged heartbeat. So followers are healthy, leaders in jeopardy
// are healthy, and a short outage of Spanner does not change that. Time during which the machine was suspended does not
// count, and neither does a change of the wall clock.
//
// Otherwise, and whenever Run is not active, Health returns an error that says what is wrong and since when: Spanner
// can't be reached, a free lock can't be claimed, or the leader function has not returned for that long after its term
// ended or its ctx was canceled.
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
	what := "no look at the lock and no claim has succeeded"
	if v.term != nil {
		what, age = "no heartbeat was acknowledged", v.term.Silence()
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

// Live is Health in the form of a liveness probe. A restart is the cure for a leader function that hangs, or for a
// Spanner client that has lost its session. Followers are live.
func (l *Lock) Live(*http.Request) error { return l.Health() }

// Leading returns nil while HasLock returns true, and an error otherwise. It is a readiness probe for requests that
// only the leader should receive. A prober notices a change only at its next probe.
func (l *Lock) Leading(*http.Request) error {
	if l.err != nil {
		return l.err
	}
	if leads, _ := l.HasLock(); !leads {
		return l.wrap("probe", ErrNotLeader)
	}
	return nil
}

// Probe turns Live or Leading into an http.Handler that answers 200, or 503 with the error. With controller-runtime,
// pass the methods themselves, because they have the signature of its healthz.Checker.
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
