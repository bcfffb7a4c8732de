package emulator

import (
	"bytes"
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
	end := bytes.LastIndexByte(stat, ')')
	_, name, _ = strings.Cut(string(stat[:max(end, 0)]), " (")
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= statStart {
		return owner{}, "", fmt.Errorf("emulator: cannot understand /proc/%d/stat: %q", pid, stat)
	}
	return owner{pid: pid, start: fields[statStart]}, name, nil
}

// awaitEnd is a shell command that ends when the owner does. A zombie has
// ended.
func awaitEnd(o owner) string {
	return fmt.Sprintf(
		`while read -r stat </proc/%d/stat && set -- ${stat##*) } && [ "$%d" != Z ] && [ "${%d}" = %s ]; do sleep 1; done`,
		o.pid, statState+1, statStart+1, o.start)
}
