//go:build !unix

package compete

import "io/fs"

// owner is not known here, and nothing runs here that needs it.
func owner(fs.FileInfo) int { return -1 }
