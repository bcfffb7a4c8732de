//go:build unix && !linux

package emulator

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// psField is a shell command that prints one field of a process. The locale and
// time zone are fixed because both appear in the start time.
func psField(pid int, field string) string {
	return fmt.Sprintf("LC_ALL=C TZ=UTC ps -o %s= -p %d", field, pid)
}

func readField(pid int, field string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", psField(pid, field)).Output()
	return strings.TrimRight(string(out), "\n"), err
}

// identify returns a running process as an owner, with its command's name.
func identify(pid int) (o owner, name string, err error) {
	if name, err = readField(pid, "comm"); err != nil {
		return owner{}, "", fmt.Errorf("emulator: cannot read the name of process %d: %w", pid, err)
	}
	start, err := readField(pid, "lstart")
	if err != nil {
		return owner{}, "", fmt.Errorf("emulator: cannot read the start time of process %d: %w", pid, err)
	}
	return owner{pid: pid, start: start}, filepath.Base(strings.TrimSpace(name)), nil
}

// awaitEnd is a shell command that ends when the owner does. A zombie has
// ended.
func awaitEnd(o owner) string {
	return fmt.Sprintf(
		`while [ "$(%s)" = %s ]; do case $(%s) in Z*) break;; esac; sleep 1; done`,
		psField(o.pid, "lstart"), quote([]string{o.start}), psField(o.pid, "stat"))
}
