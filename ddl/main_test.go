package ddl_test

import (
	"testing"

	"github.com/spindle-lock/spindle/internal/trial"
)

// TestMain fails if a client that Create uses is left open.
func TestMain(m *testing.M) {
	trial.Main(m)
}
