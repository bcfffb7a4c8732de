package agent

import (
	"errors"
	"net/http"
	"sync"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// status is the part of a hold's state that requests can see. The hold's description, the metrics and the answer to a
// release are made from it.
type status struct {
	phase    phase
	promised promise // of all promises to the program, the one that lasts longest
	lifted   bool    // the program can no longer act, so its promises don't count
	stops    string  // why the program was asked to stop, or ""
	refusal  error   // why the lock was not acquired
	lost     string  // why the program lost the lock, or ""
	gone     bool    // the agent released the lock because the program was gone
	done     bool    // the release was also to record the key as done
	ended    error   // why the lock was lost, as the lock itself reported it
	failure  error   // why the release failed
}

var states = map[phase]string{waiting: "waiting", missed: "waiting", quitting: "waiting", held: "held", doubtful: "held", stopping: "stopping", orphaned: "orphaned", releasing: "releasing", over: "released"}

// state returns the name of the phase, or how the hold ended.
func (s status) state() string {
	switch {
	case s.phase == over && s.lost != "":
		return "lost"
	case s.phase == over && s.refusal != nil:
		return "refused"
	}
	return states[s.phase]
}

// outcome returns how a hold ended, as the metrics show it. The hold must be over.
func (s status) outcome() string {
	if s.state() == "released" && s.failure != nil {
		return "unknown"
	}
	return s.state()
}

// refused returns the answer to a request with wait=0 that did not get its lock, or nil if the request got it.
func (s status) refused() answer {
	err := s.refusal
	switch code := reasonOf(err); {
	case err == nil:
		return nil
	case code == "done":
		return wrong(http.StatusConflict, "done", "%v", errDone)
	case code == "busy", code == "passed":
		return wrong(http.StatusConflict, code, "%v", err)
	}
	return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
}

// becameOf returns the answer to a release. The argument done says whether the program asked to record the key as done.
// If the hold ended before that request, the key may not have been recorded.
func (s status) becameOf(done bool) answer {
	switch {
	case done && !s.done && s.lost == "":
		return wrong(http.StatusGone, "lost", "the key was not recorded as done, because the hold had already ended: ask for a new hold to run the key again")
	case s.lost != "":
		return wrong(http.StatusGone, "lost", "%s", s.lost)
	case s.gone:
		return wrong(http.StatusGone, "lost", "the lock had been released before, because the program's process or connection ended")
	case s.failure == nil:
		return ok(map[string]string{"state": "released"})
	case errors.Is(s.failure, lock.ErrNotHeld), errors.Is(s.failure, spindle.ErrSuperseded), errors.Is(s.failure, spindle.ErrExpired):
		return wrong(http.StatusGone, "lost", "%v", s.failure)
	default:
		return unknown(s.failure)
	}
}

// holdJSON describes a hold.
type holdJSON struct {
	Hold    string   `json:"hold"`
	Kind    string   `json:"kind"`
	Names   []string `json:"names"`
	State   string   `json:"state"`
	Token   int64    `json:"token,omitempty"`
	Left    int64    `json:"left_ms"`          // how much longer the lock is held if no further heartbeat succeeds
	Program string   `json:"program"`          // the process
	Holder  string   `json:"holder"`           // the id in the lock table
	Detail  string   `json:"detail,omitempty"` // why the lock was lost or refused
}

func (h *hold) describe() holdJSON {
	s := h.status()
	j := holdJSON{Hold: h.id, Kind: h.asked.kind, Names: h.asked.names, State: s.state(), Program: h.who.String(), Holder: h.holder}
	switch {
	case s.phase.holds():
		j.Token, j.Left = int64(h.term.lock.Token()), max(h.term.lock.Left().Milliseconds(), 0)
	case j.State == "lost":
		j.Detail = s.lost
	case j.State == "refused":
		j.Detail = s.refusal.Error()
	}
	return j
}

// account guards the status of a hold, because requests read it while the hold's goroutines change it.
type account struct {
	mu  sync.Mutex
	now status
}

func (a *account) status() status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *account) change(f func(*status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.now)
}
