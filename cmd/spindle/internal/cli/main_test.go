package cli

import (
	"os"
	"testing"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// TestMain lets this program be what exec and guard start beside their commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == watchdogCommand || os.Args[1] == child.Behind) {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}
