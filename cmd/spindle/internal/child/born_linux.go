package child

import (
	"bytes"
	"fmt"
	"os"
)

// born tells a process from a later one with its number: by when it was started. It is "" if there is none.
func born(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may have spaces and parentheses in it. The start is the 22nd field of all (proc(5)).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}
