package run

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
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

// An account is the user that this process runs as, and the directories in which the lock file may be created. A
// directory is unsuitable if other users can write to it, because another user could create the lock file first and
// never release it.
type account struct {
	uid     int
	service string // $RUNTIME_DIRECTORY, which systemd creates
	root    string // for root
	login   string // $XDG_RUNTIME_DIR, which a login creates
	temp    string // shared by all users
}

func thisAccount() account {
	return account{
		uid:     os.Geteuid(),
		service: os.Getenv("RUNTIME_DIRECTORY"),
		root:    "/run/spindle",
		login:   os.Getenv("XDG_RUNTIME_DIR"),
		temp:    os.TempDir(),
	}
}

// folder returns a directory that no other user can write to. All guards of a user should choose the same directory.
// Root therefore ignores $XDG_RUNTIME_DIR, which is set after a login but not for a service.
func (a account) folder() (string, error) {
	var why []string
	for _, p := range a.places() {
		err := a.serves(p)
		if err == nil {
			return p.path, nil
		}
		why = append(why, err.Error())
	}
	return "", fmt.Errorf("no directory is safe for the lock file (%s): set RUNTIME_DIRECTORY to a directory that only this user can write to, or set RuntimeDirectory=spindle in the systemd unit", strings.Join(why, "; "))
}

// A place is a directory that may be suitable for the lock file.
type place struct {
	path string
	made bool // created by this process if it is missing
}

func (a account) places() (all []place) {
	service, _, _ := strings.Cut(a.service, ":") // systemd lists all of the unit's directories
	if service != "" {
		all = append(all, place{path: service})
	}
	switch {
	case a.uid == 0:
		all = append(all, place{a.root, true})
	case a.login != "":
		all = append(all, place{path: a.login})
	}
	return append(all, place{filepath.Join(a.temp, fmt.Sprintf("spindle-%d", a.uid)), true})
}

// serves returns an error if a place is unsuitable.
func (a account) serves(p place) error {
	if !filepath.IsAbs(p.path) {
		return fmt.Errorf("%s is not an absolute path", terminal.Show(p.path))
	}
	if p.made {
		if err := os.Mkdir(p.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	info, err := os.Lstat(p.path)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, not a directory", terminal.Show(p.path))
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", terminal.Show(p.path))
	case owner(info) != a.uid:
		return fmt.Errorf("%s belongs to user %d, not to user %d", terminal.Show(p.path), owner(info), a.uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is writable by other users (mode %#o)", terminal.Show(p.path), info.Mode().Perm())
	}
	return nil
}
