//go:build unix

package compete

import (
	"io/fs"
	"syscall"
)

// owner returns the user that a file belongs to, or -1.
func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
