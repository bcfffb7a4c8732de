package spindletest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A private emulator gets the flags of its test. Without them, a test that asks for faults would pass because there are none.
func TestThePrivateEmulatorGetsItsFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	var c config
	Private("--log_requests", "--no_such_flag")(&c)
	e, err := c.emulator(t.Context())
	if err == nil {
		_ = e.Close()
	}
	assert.ErrorContains(t, err, "no_such_flag")
}
