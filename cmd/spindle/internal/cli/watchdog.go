package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/internal/elect"
)

// While its service may be active, a guard has a watchdog. Only the watchdog deactivates the service: when guard tells
// it to, when guard is dead, or when guard has let its deadline pass. So no two processes deactivate at once, and a
// deactivation goes on whatever happens to guard.

// arm starts the watchdog.
func (g *guarding) arm(t *elect.Term) (*child.Watchdog, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	args := []string{watchdogCommand, "guard", g.db, g.table, g.name, g.id, g.renew.String(), strconv.Itoa(g.confirm), g.deactivate}
	var files []*os.File
	if g.single != nil {
		files = append(files, g.single.File)
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

// until is when a term is lost, unless it is extended. It is early if this process is stopped meanwhile.
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

// alone waits until no other guard, and no watchdog of a dead guard, takes care of the same service on this machine.
// Services are the same if the lock, the command that deactivates and the directory are.
func (g *guarding) alone(ctx context.Context) error {
	host, _ := os.Hostname()
	dir, _ := os.Getwd()
	what := sha256.Sum256([]byte(strings.Join([]string{host, dir, g.db, g.table, g.name, g.deactivate}, "\x00")))
	path := filepath.Join(os.TempDir(), fmt.Sprintf("spindle-guard-%d-%x", os.Getuid(), what[:8]))
	for told := false; ; told = true {
		var err error
		g.single, err = child.NewSingle(path)
		if !errors.Is(err, child.ErrBusy) {
			if err != nil {
				g.complain("%s: can't tell whether another guard of this service runs here: %v", g.name, err)
			}
			return nil
		}
		if !told {
			g.complain("%s: waiting: another guard on this machine, or the watchdog of a dead one, takes care of this service", g.name)
		}
		elect.Sleep(ctx, elect.SystemClock{}, min(g.renew/4, 100*time.Millisecond))
		if ctx.Err() != nil {
			g.say("%s: told to end while waiting for another guard or watchdog of the service", g.name)
			return &exit{} // success: there is nothing to deactivate
		}
	}
}
