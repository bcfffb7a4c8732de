package spindletest_test

import (
	"testing"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// TestMain fails if anything is left running after the cleanups.
func TestMain(m *testing.M) {
	testcheck.Main(m)
}
