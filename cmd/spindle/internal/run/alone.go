package run

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
)

// alone waits until no other guard on this machine manages the same service. If another guard has died, alone waits
// until its watchdog has exited. Two guards manage the same service if they have the same lock, the same --deactivate
// command and the same working directory.
func (g *guarding) alone(ctx context.Context) error {
	path, err := g.lockFilePath()
	if err != nil {
		g.cantTell(err)
		return nil
	}
	for told := false; ; told = true {
		g.lockFile, err = child.NewLockFile(path)
		if !errors.Is(err, child.ErrBusy) {
			if err != nil {
				g.cantTell(err)
			}
			return nil
		}
		if !told {
			g.reports.does(false, "waiting because another guard on this machine, or the watchdog of a dead guard, manages this service")
			g.complain("%s: waiting because another guard on this machine, or the watchdog of a dead guard, manages this service", g.name)
		}
		elect.Sleep(ctx, elect.SystemClock{}, min(g.renew/4, 100*time.Millisecond))
		if ctx.Err() != nil {
			g.say("%s: stopped by a signal while waiting for another guard or its watchdog to exit", g.name)
			return &exit.Error{} // success: there is nothing to deactivate
		}
	}
}

func (g *guarding) cantTell(err error) {
	g.complain("%s: can't check whether another guard manages this service on this machine: %v", g.name, err)
}

// lockFilePath returns the path of the service's lock file.
func (g *guarding) lockFilePath() (string, error) {
	dir, err := thisAccount().folder()
	if err != nil {
		return "", err
	}
	host, _ := os.Hostname()
	work, _ := os.Getwd()
	what := sha256.Sum256([]byte(strings.Join([]string{host, work, g.Path, g.Table, g.name, g.deactivate}, "\x00")))
	return filepath.Join(dir, fmt.Sprintf("guard-%x", what[:8])), nil
}
