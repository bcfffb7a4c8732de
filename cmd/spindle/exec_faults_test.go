//go:build linux

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var execFaults = flag.Int("exec-faults", 9, "how many runs of exec have a fault, at an instant that is drawn")

// A run is one run of exec. Its program beats, and has started a process that left its group. Somebody reads its messages.
type run struct {
	dir    string
	env    []string
	spin   *exec.Cmd
	reader *exec.Cmd
	ended  chan struct{}
}

const beats = `exec perl -e 'use Time::HiRes "time"; open B, ">>", "beats"; for (B->autoflush;; select undef, undef, undef, 0.005) { printf B "%.6f\n", time }'`

func startRun(t *testing.T, name, path, host string, flags ...string) *run {
	r := &run{dir: t.TempDir(), ended: make(chan struct{})}
	r.env = append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+host, "SPINDLE_NAME="+name, "RUN="+r.dir)
	r.spin = exec.Command("spindle", append(append([]string{"exec"}, flags...), "--", "sh", "-c", `setsid sh -c 'echo $$ >stray; while :; do sleep 0.1; done' & echo $$ >program; `+beats)...)
	r.reader = exec.Command("sh", "-c", "while read line; do echo \"$line\" >>messages; done")
	out, err := r.spin.StderrPipe()
	require.NoError(t, err)
	r.reader.Stdin = out
	for _, c := range []*exec.Cmd{r.reader, r.spin} {
		c.Dir, c.Env = r.dir, r.env
	}
	r.reader.Env = os.Environ() // it is not what must not survive
	require.NoError(t, r.spin.Start())
	require.NoError(t, r.reader.Start())
	go func() {
		defer close(r.ended)
		state, _ := r.spin.Process.Wait()
		r.spin.ProcessState = state
	}()
	t.Cleanup(func() {
		_ = r.reader.Process.Kill()
		_ = r.reader.Wait()
	})
	return r
}

// processes are those that this run has started and that have not ended.
func (r *run) processes() (pids []int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		b, _ := os.ReadFile(path) // nothing of what has ended
		if slices.Contains(strings.Split(string(b), "\x00"), "RUN="+r.dir) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r *run) pid(name string) int {
	b, _ := os.ReadFile(filepath.Join(r.dir, name))
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// lastBeat returns when the program has beaten last, in seconds since 1970. It returns 0 if it can't read that.
func (r *run) lastBeat() float64 {
	b, _ := os.ReadFile(filepath.Join(r.dir, "beats"))
	beats := strings.Fields(string(b))
	if len(beats) == 0 {
		return 0
	}
	last, _ := strconv.ParseFloat(beats[len(beats)-1], 64)
	return last
}

// watchdog is the number of exec's watchdog, or 0.
func (r *run) watchdog() int {
	for _, pid := range r.processes() {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(b), "__watchdog") {
			return pid
		}
	}
	return 0
}

// code is the exit code of exec, as a shell has it.
func (r *run) code() int {
	if status := r.spin.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return r.spin.ProcessState.ExitCode()
}

// Whatever is killed or stopped around it, exec ends with the code that says what happened, and nothing of it survives. The
// next exec gets the lock once nothing works under it any more.
func TestNothingSurvivesWhateverHappensAroundExec(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)

	// The next exec waits for half a minute, so that a short lease can expire meanwhile. A long one can't: the watchdog must have
	// released it. Even a short one bears a machine that is busy for seconds.
	short, long := []string{"--lease", "18s"}, []string{"--lease", "60s"}
	const byKill, byTerm, lost = 137, 143, 76
	faults := []struct {
		name   string
		victim func(*run) int
		signal syscall.Signal
		code   int  // exec's
		itself bool // it ends by itself, and not by SIGTERM
		flags  []string
	}{
		{"its reader is killed", func(r *run) int { return r.reader.Process.Pid }, syscall.SIGKILL, byTerm, false, short},
		{"its reader is stopped", func(r *run) int { return r.reader.Process.Pid }, syscall.SIGSTOP, byTerm, false, short},
		{"its watchdog is killed", (*run).watchdog, syscall.SIGKILL, byTerm, false, short},
		{"its watchdog is stopped", (*run).watchdog, syscall.SIGSTOP, byTerm, false, short},
		{"its program is killed", func(r *run) int { return r.pid("program") }, syscall.SIGKILL, byKill, true, short},
		{"its program is stopped", func(r *run) int { return r.pid("program") }, syscall.SIGSTOP, lost, true, short},
		{"its program is stopped, and it is told to end", func(r *run) int { return r.pid("program") }, syscall.SIGSTOP, byTerm, false, short},
		{"it is killed", func(r *run) int { return r.spin.Process.Pid }, syscall.SIGKILL, byKill, true, long},
		{"it is killed in a slot", func(r *run) int { return r.spin.Process.Pid }, syscall.SIGKILL, byKill, true, append(long, "--slots", "1")},
	}
	for i := range *execFaults {
		f := faults[i%len(faults)]
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("job-%d", i)
			r := startRun(t, name, path, e.Addr(), f.flags...)
			t.Cleanup(func() {
				if t.Failed() {
					text, _ := os.ReadFile(filepath.Join(r.dir, "messages"))
					t.Logf("%s: %s", f.name, text)
				}
			})
			require.Eventually(t, func() bool { return r.lastBeat() != 0 && r.pid("stray") != 0 && r.watchdog() != 0 }, patience, 10*time.Millisecond)
			time.Sleep(rand.N(2 * time.Second))
			victim := f.victim(r)
			require.Positive(t, victim, "%s: exec has ended before", f.name) // 0 would be the tests' own group
			require.NoError(t, syscall.Kill(victim, f.signal), f.name)
			if !f.itself {
				time.Sleep(rand.N(time.Second))
				require.NoError(t, r.spin.Process.Signal(syscall.SIGTERM))
			}
			select {
			case <-r.ended:
			case <-time.After(patience):
				require.Fail(t, "exec does not end", f.name)
			}
			assert.Equal(t, f.code, r.code(), f.name)

			next := exec.Command("spindle", append(append([]string{"exec"}, f.flags...), "--wait", "30s", "-q", "--", "date", "+%s.%N")...)
			next.Env = r.env[:len(r.env)-1]
			out, err := next.Output()
			require.NoError(t, err, f.name)
			var begins float64
			_, err = fmt.Sscan(string(out), &begins)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(r.processes()) == 0 }, patience, 10*time.Millisecond, "%s: a process survives", f.name)
			last := r.lastBeat()
			require.NotZero(t, last, "%s: the last beat can't be read", f.name)
			assert.Less(t, last, begins, "%s: the program works beside the next one", f.name)
		})
	}
}
