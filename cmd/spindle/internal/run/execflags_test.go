//go:build unix

package run

import (
	"os/signal"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// execWith runs exec with a command line, without a database. If the command line is right, that is what exec complains of.
func execWith(flags ...string) error {
	c := NewExec(&database.Database{})
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append(slices.Clone(flags), "--", "true"))
	return c.Execute()
}

const noDatabase = "no database given"

// Each flag of exec is refused just beyond its limits, and no earlier. A limit that is not checked is taken for another one: a
// negative --run-timeout for none, or the code 76 of --already for a loss.
func TestTheFlagsOfExecHaveLimits(t *testing.T) {
	defer signal.Reset(passedOn...)
	for want, lines := range map[string][]string{
		noDatabase: {"--slots=1", "--slots=1000", "--slots=1 --name=" + strings.Repeat("s", 4086), "--once=1 --already=0", "--once=1 --already=3", "--once=1 --already=74", "--once=1 --already=77", "--once=1 --already=125",
			"--unhealthy=1", "--unhealthy=100", "--stall=3333333333ns", "--stall=0", "--lease=3s --stall=1s", "--grace=0", "--grace=1h", "--wait=0", "--wait=1ns", "--run-timeout=1ns",
			"--stop-timeout=1ns", "--hook-timeout=1ns", "--health-listen=:0", "--every=1s", "--every=1h --offset=3599s", "--every=1h --offset=-3599s", "--cron=@daily --tz=Asia/Kolkata", "--once=" + strings.Repeat("k", 1024)},
		"--slots":         {"--slots=0", "--slots=-1", "--slots=1001"},
		"at most 4086":    {"--slots=1 --name=" + strings.Repeat("s", 4087)},
		"--already":       {"--once=1 --already=-1", "--once=1 --already=1", "--once=1 --already=2", "--once=1 --already=75", "--once=1 --already=76", "--once=1 --already=126", "--once=1 --already=127"},
		"--unhealthy":     {"--unhealthy=0", "--unhealthy=101", "--unhealthy=-1"},
		"--stall":         {"--stall=3333333332ns", "--stall=-1ns", "--stall=-1h", "--lease=3s --stall=999ms"},
		"--grace":         {"--grace=-1ns"},
		"--wait":          {"--wait=-1ns"},
		"--run-timeout":   {"--run-timeout=-1ns"},
		"--stop-timeout":  {"--stop-timeout=-1ns"},
		"--hook-timeout":  {"--hook-timeout=0"},
		"--health-listen": {"--health-listen=8118"},
		"--every":         {"--every=0", "--every=-1h", "--every=1500ms", "--every=1h --offset=1h", "--every=1h --offset=-1h"},
		"--cron":          {"--cron=", "--cron=daily"},
		"--tz":            {"--cron=@daily --tz=Europe/Belin"},
		"--once":          {"--once=", "--once=" + strings.Repeat("k", 1025), "--once=\a"},
	} {
		for _, line := range lines {
			assert.ErrorContains(t, execWith(strings.Fields(line)...), want, line)
		}
	}
}

// Only the command line says what exec runs once. If a variable could say it, a variable that is left over on one machine would
// change the keys on this machine, and the work would run twice.
func TestNoVariableSaysWhatExecRunsOnce(t *testing.T) {
	flags := NewExec(&database.Database{}).Flags()
	for name, value := range map[string]string{"every": "1h", "cron": "@daily", "once": "1", "offset": "1m", "tz": "Asia/Kolkata", "already": "77"} {
		t.Setenv("SPINDLE_"+strings.ToUpper(name), value)
		assert.NoError(t, terminal.FromEnvironment(flags))
		assert.False(t, flags.Changed(name), name)
	}
}

// Two flags that contradict each other are refused, and so is one without the flag that it refines. All other pairs go together.
func TestTheFlagsOfExecContradictEachOther(t *testing.T) {
	defer signal.Reset(passedOn...)
	flags := []string{"--every=1h", "--cron=@daily", "--once=1", "--offset=1m", "--tz=UTC", "--already=77", "--restart", "--handover", "--slots=2", "--try", "--wait=1s"}
	apart := []string{"every cron", "every once", "cron once", "cron offset", "once offset", "every tz", "once tz", "every restart", "cron restart", "once restart",
		"every handover", "cron handover", "once handover", "every slots", "cron slots", "once slots", "handover slots", "try wait"}
	needs := map[string][]string{"offset": {"every"}, "tz": {"cron"}, "already": {"every", "cron", "once"}}
	name := func(flag string) string { name, _, _ := strings.Cut(flag[2:], "="); return name }
	for i, a := range flags {
		for _, b := range flags[i:] {
			together := !slices.Contains(apart, name(a)+" "+name(b))
			for _, pair := range [][]string{{a, b}, {b, a}} {
				if needed := needs[name(pair[0])]; needed != nil {
					together = together && slices.Contains(needed, name(pair[1]))
				}
			}
			err := execWith(a, b)
			assert.Equal(t, together, strings.Contains(err.Error(), noDatabase), "%s %s: %v", a, b, err)
		}
	}
}
