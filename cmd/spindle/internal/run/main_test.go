package run

import (
	"os"
	"testing"
)

// TestMain lets this program be what exec and guard start beside their commands.
func TestMain(m *testing.M) {
	if code, is := Beside(os.Args[1:]); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
