package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// What /proc/PID/stat says, from its third field on (proc(5)).
const (
	state  = 0
	parent = 1
	group  = 2
	start  = 19
)

func stat(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// The name, in parentheses, may have spaces and parentheses in it.
	var fields []string
	for _, f := range bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) {
		fields = append(fields, string(f))
	}
	if len(fields) <= start {
		return nil, fmt.Errorf("%s has %d fields", path, len(fields))
	}
	return fields, nil
}

// ours reports whether the numbers in /proc are those of this process's pid namespace (pid_namespaces(7)).
func ours() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// born is when a process was started, which tells it from a later one with its number. It is "" if there is no such
// process, or if that can't be known.
func born(pid int) string {
	if !ours() {
		return ""
	}
	fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return fields[start]
}

// onlyZombies reports whether all processes of the group have ended, though their parent has not waited for them yet:
// an init may take seconds to. It is false if /proc does not show all processes.
func onlyZombies(pgid int) bool {
	if born(1) == "" {
		return false // hidepid=, see proc(5), or not ours
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(paths) == 0 {
		return false
	}
	for _, path := range paths {
		fields, err := stat(path)
		switch {
		case err != nil && ended(path), err == nil && fields[group] != strconv.Itoa(pgid):
			continue
		case err != nil, fields[state] != "Z":
			return false
		}
		// The first thread may have ended before the others.
		threads, err := os.ReadDir(filepath.Join(filepath.Dir(path), "task"))
		if !os.IsNotExist(err) && len(threads) != 1 {
			return false
		}
	}
	return true
}

// ended tells a process that has ended while it was read.
func ended(path string) bool {
	_, err := os.Stat(path)
	return os.IsNotExist(err)
}
