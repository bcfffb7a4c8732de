package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

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
