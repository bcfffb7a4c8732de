//go:build unix

package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

var failovers = flag.Int("failovers", 2, "how many failovers each pair of guarded machines has; there are four pairs if SPINDLE_ALL_CASES is set, or else one")

// The scripts of a service that says when it was active: from before its activation to after its
// deactivation. Files say whether it is sick, or hangs.
const (
	turnOn  = `echo "on $1 $(date +%s%N)" >>log; sleep 0.0$2`
	turnOff = `sleep 0.$2; echo "off $1 $(date +%s%N)" >>log`
	health  = `if [ -e $1.hang ]; then sleep 100; fi; [ ! -e $1.sick ]`
)

// machine is one of two machines: its guard, its service, its network, and an init system.
type machine struct {
	t     *testing.T
	dir   string
	name  string
	net   *network.Link
	env   []string
	guard *exec.Cmd
	logs  []string // of each guard, since the watchdog of a dead one writes beside the next guard
}

func (m *machine) start() {
	m.guard = exec.Command("spindle", "guard", "--name", "service", "--id", m.name,
		"--renew", "400ms", "--failures", "3", "--confirm", "6",
		"--activate", "sh on.sh "+m.name+" 3", "--deactivate", "sh off.sh "+m.name+" 1", "--healthcheck", "sh health.sh "+m.name)
	m.guard.Dir, m.guard.Env = m.dir, m.env
	m.logs = append(m.logs, filepath.Join(m.dir, fmt.Sprintf("%s.%d.log", m.name, len(m.logs))))
	log, err := os.Create(m.logs[len(m.logs)-1])
	require.NoError(m.t, err)
	defer log.Close()
	m.guard.Stderr = log
	require.NoError(m.t, m.guard.Start())
}

// startAgain does what an init system does, by the unit of deploy/systemd, however the guard has ended: it deactivates, and
// starts the guard again.
func (m *machine) startAgain() {
	_ = m.guard.Wait()
	stop := exec.Command("sh", "off.sh", m.name, "1")
	stop.Dir = m.dir
	require.NoError(m.t, stop.Run())
	m.start()
}

func (m *machine) signal(s os.Signal) { require.NoError(m.t, m.guard.Process.Signal(s)) }

// said is what the guards of this machine have logged.
func (m *machine) said() string {
	var all strings.Builder
	for _, log := range m.logs {
		text, err := os.ReadFile(log)
		require.NoError(m.t, err)
		all.Write(text)
	}
	return all.String()
}

// begun reports whether the guard has logged something.
func (m *machine) begun() bool {
	log, err := os.Stat(m.logs[len(m.logs)-1])
	require.NoError(m.t, err)
	return log.Size() > 0
}

// stop stops the guard once it has begun: before that, SIGTERM ends it as it ends any program.
func (m *machine) stop() {
	require.Eventually(m.t, m.begun, time.Minute, 10*time.Millisecond, "the guard says nothing")
	m.signal(syscall.SIGTERM)
	require.NoError(m.t, m.guard.Wait())
}

// mark makes or removes a file that the service looks for.
func (m *machine) mark(what string, present bool) {
	file := filepath.Join(m.dir, m.name+"."+what)
	if present {
		require.NoError(m.t, os.WriteFile(file, nil, 0o600))
	} else if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		require.NoError(m.t, err)
	}
}

// turn is a time in which a service was active.
type turn struct {
	on, off int64 // 0: still active
	by      string
}

func turns(t *testing.T, dir string) (all []turn) {
	f, err := os.Open(filepath.Join(dir, "log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, by string
		var at int64
		_, err := fmt.Sscan(lines.Text(), &what, &by, &at)
		require.NoError(t, err)
		last := slices.IndexFunc(all, func(t turn) bool { return t.by == by && t.off == 0 })
		switch {
		case what == "on" && last < 0:
			all = append(all, turn{on: at, by: by})
		case what == "off" && last >= 0:
			all[last].off = at
		}
	}
	return all
}

func TestGuardedServicesAreNeverActiveOnTwoMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	pairs := fleet.Part[uint64](0, 1, 2, 3)
	for _, pair := range pairs {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			if len(pairs) > 1 { // or it would be the last of all tests
				t.Parallel()
			}
			guardPair(t, pair)
		})
	}
}

func guardPair(t *testing.T, seed uint64) {
	e, path := newDatabase(t)
	dir := t.TempDir()
	for file, text := range map[string]string{"on.sh": turnOn, "off.sh": turnOff, "health.sh": health} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	var machines []*machine
	for _, name := range []string{"a", "b"} {
		p, err := network.NewLink(e.Addr())
		require.NoError(t, err)
		t.Cleanup(p.Close)
		m := &machine{t: t, dir: dir, name: name, net: p, env: append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+p.Addr(), "TMPDIR="+dir, "RUNTIME_DIRECTORY="+dir)}
		m.start()
		t.Cleanup(func() {
			p.Mend()
			_ = m.guard.Process.Kill()
			_ = m.guard.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", name, m.said())
			}
		})
		machines = append(machines, m)
	}

	r := rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano())))
	start, seen, changed := time.Now(), 0, time.Now()
	faults := map[string]int{}
	for seen <= *failovers {
		all := turns(t, dir)
		n := 0
		for i, now := range all {
			if i > 0 && now.by != all[i-1].by {
				n++
			}
		}
		if n > seen {
			seen, changed = n, time.Now()
		}
		require.Less(t, time.Since(changed), 3*time.Minute, "nothing happens any more")

		m := machines[r.IntN(2)]
		if len(all) > 0 && r.IntN(4) > 0 { // mostly the one that is active, since that is when something happens
			m = machines[strings.IndexByte("ab", all[len(all)-1].by[0])]
		}
		fault := []string{"sick", "sick", "hang", "crash", "kill", "stop", "cut", "restart"}[r.IntN(8)]
		faults[fault]++
		pause := time.Duration(r.Int64N(int64(2 * time.Second)))
		switch fault {
		case "crash":
			m.signal(syscall.SIGKILL)
			m.startAgain()
			time.Sleep(pause / 4)
		case "kill": // where there is no init system, only the watchdog can deactivate
			m.signal(syscall.SIGKILL)
			_ = m.guard.Wait()
			m.start()
			time.Sleep(pause / 4)
		case "stop":
			m.signal(syscall.SIGSTOP)
			time.Sleep(time.Second + pause)
			m.signal(syscall.SIGCONT)
		case "restart":
			m.signal(syscall.SIGTERM)
			m.startAgain()
			time.Sleep(pause / 4)
		case "cut":
			m.net.BlackHole()
			time.Sleep(2*time.Second + pause)
			m.net.Mend()
		default:
			m.mark(fault, true)
			time.Sleep(time.Second + pause/2)
			m.mark(fault, false)
		}
	}
	for _, m := range machines {
		m.stop()
	}

	// A guard that was killed just before has its watchdog do it, and one that was started since need not wait for that.
	var all []turn
	require.Eventually(t, func() bool {
		all = turns(t, dir)
		return !slices.ContainsFunc(all, func(t turn) bool { return t.off == 0 })
	}, 10*time.Second, 10*time.Millisecond, "guards end with the service inactive")
	for i := 1; i < len(all); i++ {
		before, now := all[i-1], all[i]
		require.NotZero(t, before.off, "%v is not deactivated", before)
		require.Less(t, before.off, now.on, "%s is active for %v while %s is", now.by, time.Duration(before.off-now.on), before.by)
	}
	t.Logf("%d turns, %d failovers in %v, after %v", len(all), seen, time.Since(start).Round(time.Second), faults)
}
