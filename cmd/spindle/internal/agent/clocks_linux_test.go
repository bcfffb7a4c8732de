package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// The agent's readings are those of the clocks that a program reads, and never later: a program compares them with its own.
func TestTheAgentReadsTheClocksOfItsPrograms(t *testing.T) {
	read := func(clock int32) int64 {
		var ts unix.Timespec
		assert.NoError(t, unix.ClockGettime(clock, &ts))
		return ts.Nano() / 1e6
	}
	now := func() reading {
		return reading{read(unix.CLOCK_BOOTTIME), read(unix.CLOCK_MONOTONIC), time.Now().UnixMilli()}
	}
	before, said, after := now(), readClocks(), now()
	for _, c := range [][3]int64{{before.Boottime, said.Boottime, after.Boottime}, {before.Monotonic, said.Monotonic, after.Monotonic}, {before.Unix, said.Unix, after.Unix}} {
		assert.True(t, 0 < c[0] && c[0] <= c[1] && c[1] <= c[2], "%v", c)
	}
}
