package ddl_test

import (
	"testing"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// TestMain fails if a client that Create uses is left open.
func TestMain(m *testing.M) {
	testcheck.Main(m)
}
