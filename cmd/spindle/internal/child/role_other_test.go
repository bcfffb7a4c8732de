//go:build unix && !linux

package child

import "os"

// On Linux, TestMain does this.
func init() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Behind:
		Pass(os.Args[2:])
		os.Exit(CannotRun)
	case len(os.Args) > 2 && os.Args[1] == watching:
		watchFor(os.Args[2])
		os.Exit(0)
	}
}
