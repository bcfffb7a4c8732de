package agent

import "sync"

// status is what requests can see of a hold: its description, the metrics and the answer to a release are made from it.
type status struct {
	phase    phase
	promised promise // the one that lasts longest
	lifted   bool    // the program can no longer act, so its promises don't count
	stops    string  // why the program was asked to stop, or ""
	refusal  error   // why the lock was not acquired
	lost     string  // why the program lost the lock, or ""
	done     bool    // the release was to record the key as done
	ended    error   // how the term ended, unless it was released
	failure  error   // why the release failed
}

// outcome returns the name of the state, as descriptions and metrics show it.
func (s status) outcome() string {
	switch {
	case s.phase == over && s.lost != "":
		return "lost"
	case s.phase == over && s.refusal != nil:
		return "refused"
	}
	return states[s.phase]
}

var states = map[phase]string{waiting: "waiting", quitting: "waiting", held: "held", doubtful: "held", stopping: "stopping", orphaned: "orphaned", releasing: "releasing", over: "released"}

// account guards the status of a hold, which requests read while the hold changes it.
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
