package run

import (
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// A hookKind is the event that a hook is for. It is also the name of the hook's flag.
type hookKind string

// The kinds.
const (
	onAcquire hookKind = "on-acquire" // the lock was acquired
	onLost    hookKind = "on-lost"    // the lock was lost rather than released
	onStuck   hookKind = "on-stuck"   // a program or service that should have ended may still be running
)

// hookKinds lists all kinds.
var hookKinds = []hookKind{onAcquire, onLost, onStuck}

// hooks are the hooks of one process. At most one hook of each kind runs at a time.
type hooks struct {
	Commands map[hookKind]string // commands for /bin/sh; a kind without a command has no hook
	Limit    time.Duration       // how long a hook may run
	Warn     func(format string, args ...any)
	Failed   func(hookKind) // called when a hook fails, is killed, or can't be started; or nil

	mu      sync.Mutex
	running map[hookKind]bool
	all     sync.WaitGroup
}

// Run starts the hook of the given kind, if there is one, and returns without waiting for it. If the previous hook of
// the same kind is still running, Run skips the new one and logs a warning. Run calls environment before it returns.
func (h *hooks) Run(k hookKind, environment func() []string) {
	if h.Commands[k] == "" {
		return
	}
	if !h.take(k) {
		h.Warn("--%s was skipped because its previous run has not finished", k)
		return
	}
	env, limit := environment(), h.Limit
	h.all.Go(func() {
		defer h.free(k)
		h.run(k, env, limit)
	})
}

func (h *hooks) take(k hookKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[k] {
		return false
	}
	if h.running == nil {
		h.running = map[hookKind]bool{}
	}
	h.running[k] = true
	return true
}

func (h *hooks) free(k hookKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, k)
}

func (h *hooks) run(k hookKind, env []string, limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	// hooks write to standard error, because standard output belongs to the program.
	c, err := child.Start([]string{"/bin/sh", "-c", "exec >&2\n" + h.Commands[k]}, env, child.Apart)
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
		c.Kill()
		<-c.Done()
	}
}

func (h *hooks) failed(k hookKind, err error) {
	h.Warn("--%s failed, which does not affect the lock: %s: %v", k, h.Commands[k], err)
	if h.Failed != nil {
		h.Failed(k)
	}
}

// Wait waits until no hook is running. It stops waiting when stop is closed, or after slightly more than the time limit
// of a hook.
func (h *hooks) Wait(stop <-chan struct{}) {
	ended := make(chan struct{})
	go func() { h.all.Wait(); close(ended) }()
	limit := time.NewTimer(h.Limit + h.Limit/10) // includes time to wait for a hook that is killed at its limit
	defer limit.Stop()
	select {
	case <-ended:
	case <-stop:
	case <-limit.C:
		h.Warn("a hook was killed but has not exited; not waiting any longer")
	}
}
