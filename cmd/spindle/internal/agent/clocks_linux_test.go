package agent

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The agent's readings are those of the clocks that a program reads, and never later: a program compares them with its own. On a machine
// that was never suspended, two of the clocks agree, so the test also runs where all of them differ.
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
	if os.Getenv("CLOCKS_DIFFER") == "" {
		again := exec.Command("unshare", "--user", "--map-root-user", "--time", "--boottime=100000", "--monotonic=5000", "--fork", "--kill-child", os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), "CLOCKS_DIFFER=1")
		text, err := again.CombinedOutput()
		require.NoError(t, err, string(text))
	}
}
