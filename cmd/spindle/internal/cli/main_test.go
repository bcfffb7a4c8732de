package cli

import (
	"os"
	"slices"
	"testing"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// TestMain lets this program be what exec and guard start beside their commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{watchdogCommand, hookCommand, child.Behind}, os.Args[1]) {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}
