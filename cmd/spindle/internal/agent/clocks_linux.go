package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// readClocks rounds down, because a reading that is too early can only shorten the time that a program is promised.
func readClocks() reading {
	return reading{Boottime: millis(unix.CLOCK_BOOTTIME), Monotonic: millis(unix.CLOCK_MONOTONIC), Unix: time.Now().UnixMilli()}
}

func millis(clock int32) int64 {
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil {
		return 0
	}
	return ts.Nano() / int64(time.Millisecond)
}
