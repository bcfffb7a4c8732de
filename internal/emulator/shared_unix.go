//go:build unix

package emulator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPause is how often a state file that another process has locked is tried.
// A blocking lock could not be given up when the context ends.
const lockPause = 10 * time.Millisecond

// shareable returns the parent of this process if that is a go command, with
// whose other children an emulator can be shared.
func shareable() (owner, bool) {
	parent, name, err := identify(os.Getppid())
	return parent, err == nil && name == "go"
}

// shareWith returns the emulator that the children of the owner share, and
// starts it if there is none that answers.
func shareWith(ctx context.Context, o owner) (*Emulator, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	o.state = filepath.Join(dir, stateName(o))
	state, err := os.OpenFile(o.state, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("emulator: cannot open the state of the shared emulator: %w", err)
	}
	defer state.Close() // which unlocks it
	if err := lock(ctx, state); err != nil {
		return nil, fmt.Errorf("emulator: cannot lock %s: %w", o.state, err)
	}

	addr, err := io.ReadAll(state)
	if err != nil {
		return nil, fmt.Errorf("emulator: cannot read the state of the shared emulator: %w", err)
	}
	if len(addr) > 0 && reach(ctx, string(addr)) == nil {
		return &Emulator{addr: string(addr)}, nil
	}
	e, err := start(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	return e, record(state, e.addr)
}

// stateName differs for any two processes, even for two with the same pid.
func stateName(o owner) string {
	start := sha256.Sum256([]byte(o.start))
	return fmt.Sprintf("%d-%x", o.pid, start[:8])
}

// stateDir is a directory that nobody but this user can write to, so that
// nobody else can say where this user's tests connect to.
func stateDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("spindle-emulator-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("emulator: cannot create the directory for the state of shared emulators: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("emulator: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("emulator: %s must be a directory of this user's with mode 0700, but it is %s of user %d: remove it", dir, info.Mode(), stat.Uid)
	}
	return dir, nil
}

func lock(ctx context.Context, f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

func record(state *os.File, addr string) error {
	err := state.Truncate(0)
	if err == nil {
		_, err = state.WriteAt([]byte(addr), 0)
	}
	if err != nil {
		return fmt.Errorf("emulator: cannot record the shared emulator: %w", err)
	}
	return nil
}
