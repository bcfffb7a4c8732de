package telemetry

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/spindle-lock/spindle/internal/table"
)

// about identifies a lock.
type about struct{ table, lock string }

// standing is this process's state for one lock.
type standing struct {
	lock       metric.MeasurementOption
	candidates int
	terms      map[*Term]bool

	low   time.Duration // the shortest remaining time of a lease since the last collection
	noted bool
}

// look returns how many times the lock is held now, and under which token.
func (s *standing) look() (held int64, token table.Token) {
	for t := range s.terms {
		if left := t.term.Left(); left > 0 {
			held, token = held+1, max(token, t.term.Token())
			s.note(left)
		}
	}
	return held, token
}

func (s *standing) note(left time.Duration) {
	if left = max(left, 0); !s.noted || left < s.low {
		s.low, s.noted = left, true
	}
}

// least returns the shortest remaining time of a lease since the previous call, and reports whether there is one.
func (s *standing) least() (low time.Duration, noted bool) {
	low, noted, s.noted = s.low, s.noted, false
	return low, noted
}

// standings are the states of a process's locks, for one provider.
type standings struct {
	mu sync.Mutex
	of map[about]*standing
}

func (s *standings) each(f func(*standing)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.of {
		f(one)
	}
}

// update calls the function f for each lock of the Watch. It then forgets the locks that this process neither competes
// for nor holds, and returns how many locks are left in s.
func (s *standings) update(w *Watch, f func(*standing)) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, lock := range w.scope.Locks {
		key := about{w.scope.Table, lock}
		one := s.of[key]
		if one == nil {
			one = &standing{lock: w.locks[i], terms: map[*Term]bool{}}
			s.of[key] = one
		}
		if f(one); one.candidates == 0 && len(one.terms) == 0 {
			delete(s.of, key)
		}
	}
	return len(s.of)
}

// beat notes how much of the lease was left before a heartbeat extended it.
func (s *standings) beat(t *Term, left time.Duration) {
	s.update(t.watch, func(one *standing) {
		if one.terms[t] {
			one.note(left)
		}
	})
}
