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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
)

// alone waits until no other guard of this user on this machine manages the same service. If another guard has died,
// alone waits until that guard's watchdog has deactivated the service. Two guards manage the same service if they have
// the same lock, the same --deactivate command and the same working directory. If alone can't check for other guards,
// it only logs a warning.
func (g *guarding) alone(ctx context.Context) error {
	for told := false; ; told = true {
		err := g.takeLockFile()
		if !errors.Is(err, child.ErrBusy) {
			if err != nil {
				g.complainOf("can't check whether another guard manages this service on this machine: %v", err)
			}
			return nil
		}
		if !told {
			const why = "waiting because another guard on this machine, or the watchdog of a dead guard, manages this service"
			g.does(false, why)
			g.complainOf(why)
		}
		elect.Sleep(ctx, elect.SystemClock{}, min(g.renew/4, 100*time.Millisecond))
		if ctx.Err() != nil {
			g.sayOf("stopped by a signal while waiting for another guard or its watchdog to exit")
			return &terminal.Exit{} // success: the service is left to the other guard or its watchdog
		}
	}
}

func (g *guarding) takeLockFile() error {
	a := account{os.Geteuid(), os.Getenv("RUNTIME_DIRECTORY"), "/run/spindle-guard", os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()}
	dir, err := a.folder()
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	work, _ := os.Getwd()
	what := sha256.Sum256([]byte(strings.Join([]string{host, work, g.Path, g.Table, g.name, g.deactivate}, "\x00")))
	g.lockFile, err = child.NewLockFile(filepath.Join(dir, fmt.Sprintf("guard-%x", what[:8])))
	return err
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

// folder returns a directory that no other user can write to. All guards of a user should choose the same directory.
// Root therefore ignores $XDG_RUNTIME_DIR, which is set after a login but not for a system service. If root's directory
// or the one in the temporary directory is missing, folder creates it.
func (a account) folder() (string, error) {
	service, _, _ := strings.Cut(a.service, ":") // systemd lists all of the unit's directories
	own := a.login
	if a.uid == 0 {
		own = a.root
	}
	var why []string
	for i, path := range []string{service, own, filepath.Join(a.temp, fmt.Sprintf("spindle-%d", a.uid))} {
		if path == "" {
			continue
		}
		err := a.serves(path, i == 2 || i == 1 && a.uid == 0)
		if err == nil {
			return path, nil
		}
		why = append(why, err.Error())
	}
	return "", fmt.Errorf("no directory is safe for the lock file (%s): set RUNTIME_DIRECTORY to a directory that only this user can write to, or set RuntimeDirectory= in the systemd unit to a name of its own", strings.Join(why, "; "))
}

// serves returns an error if a directory is unsuitable. If makes is true, serves first creates a missing directory.
func (a account) serves(path string, makes bool) error {
	shown := terminal.Show(path)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", shown)
	}
	if makes {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, not a directory", shown)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", shown)
	case owner(info) != a.uid:
		return fmt.Errorf("%s belongs to user %d, not to user %d", shown, owner(info), a.uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is writable by other users (mode %#o)", shown, info.Mode().Perm())
	}
	return nil
}
