package compete

import (
	"os"
	"strconv"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/hooks"
	"github.com/spindle-lock/spindle/internal/elect"
)

// While its service may be active, a guard has a watchdog. Only the watchdog deactivates the service. It does so when
// guard tells it to, when guard exits, or when guard misses its deadline. So two processes never deactivate the service
// at the same time, and a deactivation continues whatever happens to guard.

// arm starts the watchdog.
func (g *guarding) arm(t *elect.Term) (*child.Watchdog, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	args := []string{watchdogCommand, "guard", g.Path, g.Table, g.name, g.id, g.renew.String(), strconv.Itoa(g.confirm), g.deactivate,
		t.Token().String(), g.reports.limit.String(), g.reports.hooks.Commands[hooks.Stuck]}
	var files []*os.File
	if g.lockFile != nil {
		files = append(files, g.lockFile.File)
	}
	dog, err := child.StartWatchdog(until(t), g.watchdogEnvironment(), args, files...)
	if err != nil {
		return nil, err
	}
	g.term, g.dog = t, dog
	return dog, nil
}

// Extended implements guard.Service.
func (g *guarding) Extended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dog != nil {
		g.dog.Allow(until(g.term))
	}
}

// until returns the time at which a term is lost unless a heartbeat extends it. If this process is stopped between the
// two clock readings, the result is too early, which is safe.
func until(t *elect.Term) time.Time {
	now := time.Now()
	return now.Add(t.Left())
}

func (g *guarding) watchdog() *child.Watchdog {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dog
}

func (g *guarding) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.dog = nil, nil
}
