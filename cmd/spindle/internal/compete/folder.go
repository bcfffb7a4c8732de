package compete

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// An account is the user that this process runs as, and the folders where the user's files of this boot may be. Where
// others can write, another user could create the file first, and keep it.
type account struct {
	uid     int
	service string // $RUNTIME_DIRECTORY, which systemd makes
	root    string // root's
	login   string // $XDG_RUNTIME_DIR, which a log-in makes
	temp    string // everybody's
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

// folder returns a folder that no other user can write to. All processes of the user should find the same one: so root
// ignores its log-in, which services don't have.
func (a account) folder() (string, error) {
	var why []string
	for _, p := range a.places() {
		err := a.serves(p)
		if err == nil {
			return p.path, nil
		}
		why = append(why, err.Error())
	}
	return "", fmt.Errorf("no folder is safe for its lock file (%s): set RUNTIME_DIRECTORY to one that only this user can write to; in a unit, RuntimeDirectory=spindle", strings.Join(why, "; "))
}

// A place may have such a folder.
type place struct {
	path string
	made bool // by this process, if it is missing
}

func (a account) places() (all []place) {
	service, _, _ := strings.Cut(a.service, ":") // systemd names all of the unit's
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

// serves returns an error if a place does not serve.
func (a account) serves(p place) error {
	if !filepath.IsAbs(p.path) {
		return fmt.Errorf("%s is no absolute path", terminal.Show(p.path))
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
		return fmt.Errorf("%s is a symbolic link, not a folder", terminal.Show(p.path))
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", terminal.Show(p.path))
	case owner(info) != a.uid:
		return fmt.Errorf("%s belongs to user %d, not to %d", terminal.Show(p.path), owner(info), a.uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others: its mode is %#o", terminal.Show(p.path), info.Mode().Perm())
	}
	return nil
}
