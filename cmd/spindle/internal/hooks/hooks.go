// Package hooks runs commands of the user when something happens to a lock. A hook runs beside everything else: it delays
// nothing and decides nothing.
package hooks

import (
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// A Kind is what a hook is for. It is also the name of its flag.
type Kind string

// The kinds.
const (
	Acquire Kind = "on-acquire" // the lock is held
	Lost    Kind = "on-lost"    // the lock was lost, not released
	Stuck   Kind = "on-stuck"   // what must not run any more may still run
)

// Kinds are all kinds.
var Kinds = []Kind{Acquire, Lost, Stuck}

// Hooks are the hooks of one process. At most one of a kind runs at a time.
type Hooks struct {
	Commands map[Kind]string // for /bin/sh; a kind without a command has no hook
	Limit    time.Duration   // how long a hook may run
	Warn     func(format string, args ...any)
	Failed   func(Kind) // a hook has failed, was killed, or could not be started; or nil

	mu      sync.Mutex
	running map[Kind]bool
	all     sync.WaitGroup
}

// Run starts the hook of a kind, if there is one, and returns at once. It calls environment before it returns. If the last hook
// of that kind still runs, Run starts none.
func (h *Hooks) Run(k Kind, environment func() []string) {
	if h.Commands[k] == "" {
		return
	}
	if !h.take(k) {
		h.Warn("--%s is not run again: its last run has not ended", k)
		return
	}
	env, limit := environment(), h.Limit
	h.all.Go(func() {
		defer h.free(k)
		h.run(k, env, limit)
	})
}

func (h *Hooks) take(k Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[k] {
		return false
	}
	if h.running == nil {
		h.running = map[Kind]bool{}
	}
	h.running[k] = true
	return true
}

func (h *Hooks) free(k Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, k)
}

func (h *Hooks) run(k Kind, env []string, limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	// Leaving: the end of a hook is not the end of a program, and only the rest of the hook's group is killed, below. A
	// hook's output is not the program's.
	c, err := child.Start([]string{"/bin/sh", "-c", "exec >&2\n" + h.Commands[k]}, env, child.Apart, child.Leaving)
	if err != nil {
		h.failed(k, err)
		return
	}
	select {
	case <-c.Done():
		if c.Code() != 0 {
			h.failed(k, fmt.Errorf("exit code %d", c.Code()))
		}
	case <-late.C:
		h.failed(k, fmt.Errorf("killed after %v", limit))
	}
	c.Kill()
	<-c.Done()
}

func (h *Hooks) failed(k Kind, err error) {
	h.Warn("--%s failed, which changes nothing else: %s: %v", k, h.Commands[k], err)
	if h.Failed != nil {
		h.Failed(k)
	}
}

// Wait waits until no hook runs, but no longer than a hook may run, and not after stop is closed.
func (h *Hooks) Wait(stop <-chan struct{}) {
	ended := make(chan struct{})
	go func() { h.all.Wait(); close(ended) }()
	limit := time.NewTimer(h.Limit + h.Limit/10) // a hook that is killed at its limit may be waited for
	defer limit.Stop()
	select {
	case <-ended:
	case <-stop:
	case <-limit.C:
		h.Warn("a hook was killed and has not ended: it is left")
	}
}
