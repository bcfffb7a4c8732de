package spindle

import (
	"errors"
	"io"
	"net/http"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Health returns nil as long as this Lock competes for the lock or keeps it. Its last success must be younger than
// three leases, or 10 s if that is longer. A follower's success is a look at the lock, and the claim if the lock was
// free; a leader's is an acknowledged heartbeat. So followers and leaders in jeopardy are healthy, and a short outage
// of Spanner does not make them unhealthy. Time in which the machine was suspended does not count, nor does a change of
// the wall clock.
//
// Otherwise, and before Run and after it has ended, the error says what is wrong and since when: Spanner can't be
// reached, a free lock can't be claimed, or the leader function has not returned for as long since its term ended or
// its ctx was canceled.
//
// Health is local: no RPC. It may be called from any goroutine.
func (l *Lock) Health() error {
	if l.err != nil {
		return l.err
	}
	v := l.view.Load() // before the pulse, which beats before a term is seen to be over
	age, runs := l.runs.Age(l.config.Clock)
	if !runs {
		return l.wrap("health", errors.New("it does not compete for the lock: Run was not called, or has ended"))
	}
	what := "no look at the lock, or claim of it, has succeeded"
	if v.term != nil {
		what, age = "no heartbeat was acknowledged", v.term.Silence()
		if v.canceled != (elect.Instant{}) {
			if hung := l.config.Clock.Now().Ran(v.canceled); hung > age {
				what, age = "the leader function was to stop and has not returned", hung
			}
		}
	}
	if err := l.runs.Check(l.config.Clock, l.config.Lease, age, what); err != nil {
		return l.wrap("health", err)
	}
	return nil
}

// Live is Health in the form of a liveness probe. A restart mends a leader function that hangs, or a Spanner client
// that has lost its session. A follower is live.
func (l *Lock) Live(*http.Request) error { return l.Health() }

// Leading returns nil while this Lock leads, as HasLock says, and otherwise an error. It is a readiness probe, for
// requests that only the leader should get. A prober notices a change only at its next probe.
func (l *Lock) Leading(*http.Request) error {
	if l.err != nil {
		return l.err
	}
	if leads, _ := l.HasLock(); !leads {
		return l.wrap("probe", ErrNotLeader)
	}
	return nil
}

// Probe makes an http.Handler of Live or Leading. It answers 200, or 503 with the error. With controller-runtime, pass
// the methods themselves: they have the form of its healthz.Checker.
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
