package spindletest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A test that asks for a fault runs with the fault, or not at all: without its flags, the emulator would pass what it should fail.
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
