//go:build !unix

package run

import "io/fs"

// owner returns -1, because nothing needs the owner on these systems.
func owner(fs.FileInfo) int { return -1 }
