package run

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// A hookKind is the event that a hook is for. Its name is also the name of the hook's flag.
type hookKind int

const (
	onAcquire hookKind = iota // the lock was acquired
	onLost                    // the lock was lost or is about to be lost, or exec's program is unfit
	onStuck                   // a program or service that should have ended may still be running
)

var hookNames = [...]string{onAcquire: "on-acquire", onLost: "on-lost", onStuck: "on-stuck"}

func (k hookKind) String() string { return hookNames[k] }

// hooks are the hooks of one process. At most one hook of each kind runs at a time.
type hooks struct {
	Commands [len(hookNames)]string // for /bin/sh; a kind without a command has no hook
	Limit    time.Duration          // how long a hook may run
	Warn     func(format string, args ...any)
	Failed   func(hookKind) // called when a hook fails, is killed, or can't be started; or nil

	running sync.Map // the kinds that are running
	all     sync.WaitGroup
}

// Run starts the hook of the given kind, if there is one, and returns without waiting for it. If the previous hook of
// the same kind is still running, Run skips the new one and logs a warning. Otherwise, it calls environment before it
// returns.
func (h *hooks) Run(k hookKind, environment func() []string) {
	if h.Commands[k] == "" {
		return
	}
	if _, running := h.running.LoadOrStore(k, true); running {
		h.Warn("--%s was skipped because its previous run has not finished", k)
		return
	}
	env, limit := environment(), h.Limit
	h.all.Go(func() {
		defer h.running.Delete(k)
		h.run(k, env, limit)
	})
}

func (h *hooks) run(k hookKind, env []string, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := shell(ctx, h.Commands[k], child.Command{Env: append(env, hookVariable+"="+k.String()), Aside: true})
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("killed after %v", limit)
	}
	h.Warn("--%s failed, which does not affect the lock: %s: %v", k, h.Commands[k], err)
	if h.Failed != nil {
		h.Failed(k)
	}
}

// shell runs a command in its own process group, and waits until it has exited. When ctx ends, shell kills the group.
func shell(ctx context.Context, command string, as child.Command) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	as.Args, as.Apart = []string{"/bin/sh", "-c", command}, true
	c, err := child.Start(as)
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		c.Kill()
		<-c.Done()
		return ctx.Err()
	}
	if c.Code() != 0 {
		return fmt.Errorf("exit code %d", c.Code())
	}
	return nil
}

// Wait waits until no hook is running. It gives up when a signal to end arrives, or after slightly more than the time
// limit of a hook.
func (h *hooks) Wait(signals <-chan os.Signal) {
	ended := make(chan struct{})
	go func() { h.all.Wait(); close(ended) }()
	limit := time.After(h.Limit + h.Limit/10) // includes time to wait for a hook that is killed at its limit
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			if ends(s) {
				return
			}
		case <-limit:
			h.Warn("a hook was killed but has not exited; not waiting any longer")
			return
		}
	}
}
