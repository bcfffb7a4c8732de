package run

import (
	"os"
	"strconv"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/internal/elect"
)

// While the service may be active, guard has a watchdog. During that time, only the watchdog deactivates the service.
// It does so when guard tells it to, when guard exits, or when guard misses its deadline. Therefore, two processes
// never deactivate the service at the same time, and a deactivation continues even if guard is killed.

// arm starts the watchdog.
func (g *guarding) arm(t *elect.Term) (*child.Watchdog, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	args := []string{watchdogCommand, "guard", g.Path, g.Table, g.name, g.id, g.renew.String(), strconv.Itoa(g.confirm), g.deactivate,
		t.Token().String(), g.reports.limit.String(), g.reports.hooks.Commands[onStuck]}
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

// Extended implements Service.
func (g *guarding) Extended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dog != nil {
		g.dog.Allow(until(g.term))
	}
}

// until returns the time at which the term is lost if no heartbeat extends it. If this process is stopped after it has
// read the time, the result is too early, which is safe.
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
