package emulator

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Positions in /proc/PID/stat, counted from the state, which is the first field
// after the command's name; see proc(5). The name is in parentheses and may
// itself contain spaces and parentheses.
const (
	statState = 0
	statStart = 19
)

// identify returns a running process as an owner, with its command's name.
func identify(pid int) (o owner, name string, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return owner{}, "", err
	}
	before, after, _ := cutLast(string(stat), ") ")
	_, name, _ = strings.Cut(before, " (")
	fields := strings.Fields(after)
	if len(fields) <= statStart {
		return owner{}, "", fmt.Errorf("emulator: cannot understand /proc/%d/stat: %q", pid, stat)
	}
	return owner{pid: pid, start: fields[statStart]}, name, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// awaitEnd is a shell command that ends when the owner does. A zombie has
// ended.
func awaitEnd(o owner) string {
	return fmt.Sprintf(
		`while read -r stat </proc/%d/stat && set -- ${stat##*) } && [ "$%d" != Z ] && [ "${%d}" = %s ]; do sleep 1; done`,
		o.pid, statState+1, statStart+1, o.start)
}
