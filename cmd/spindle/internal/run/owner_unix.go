//go:build unix

package run

import (
	"io/fs"
	"syscall"
)

// owner returns the id of the file's owner, or -1 if it is not known.
func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
