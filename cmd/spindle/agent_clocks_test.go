//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// These programs print the time and the token whenever they may work under a lock. Their arguments are the client, the
// lock, and by how many seconds their time of day steps once they have read a line. The times that they print do not
// step.
var printsWorks = map[string][]string{
	"Python": {"python3", "-c", `
import sys, threading, time
sys.path.insert(0, sys.argv[1] + "/python")
from spindle_lock import lock

read = time.clock_gettime_ns
def step():
    sys.stdin.readline()
    by = int(sys.argv[3]) * 10**9
    time.clock_gettime_ns = lambda clock: read(clock) + by if clock == time.CLOCK_REALTIME else read(clock)
threading.Thread(target=step, daemon=True).start()

with lock(sys.argv[2], lease=9) as held:
    while True:
        at = read(time.CLOCK_REALTIME) // 10**6
        if held.still():
            print(at, held.token, flush=True)
        time.sleep(0.005)
`},
	"Node": {"node", "--input-type=module", "-e", `
const [clients, name, by] = process.argv.slice(1);
const { lock } = await import(clients + '/node/src/index.js');

const read = Date.now;
process.stdin.once('data', () => { Date.now = () => read() + by * 1000; });

await lock(name, { lease: '9s' }, async (held) => {
  for (;;) {
    const at = read();
    if (held.still()) console.log(at, held.token);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
});
`},
}

// A clocked is a program whose clocks differ from its agent's, or whose time of day is set while it works.
type clocked struct {
	language, name string
	in             []string // a command around it
	step           int      // of its time of day, in seconds
}

func allClocked() (all []clocked) {
	half := fmt.Sprint(-bootMillis() / 2000) // seconds; no clock may be negative
	inNamespace := func(offset string) []string {
		return []string{"unshare", "--user", "--map-root-user", "--time", "--boottime=" + offset, "--monotonic=" + offset, "--fork", "--kill-child"}
	}
	for language := range printsWorks {
		all = append(all,
			clocked{language: language, name: language + ", in a time namespace that is behind", in: inNamespace(half)},
			clocked{language: language, name: language + ", in a time namespace that is ahead", in: inNamespace("100000")},
			clocked{language: language, name: language + ", its time of day is set back", step: -3600},
			clocked{language: language, name: language + ", its time of day is set forward", step: 3600},
		)
	}
	return all
}

// Programs whose clocks differ from their agent's, or whose time of day is set, act until their agent's last until, and
// never longer: not even if their agent is stopped and can't tell them anything.
func TestProgramsWithOtherClocksActUntilTheAgentsUntil(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	clients, err := filepath.Abs("../../clients")
	require.NoError(t, err)
	again := fleet.Part(allClocked()...)
	for attempt := 1; len(again) > 0; attempt++ {
		require.Less(t, attempt, 6, "they never act until the last until: %+v", again)
		one, two := twoAgents(t, path, e.Addr())
		again = actUntil(t, one, two, clients, again, fmt.Sprint("job-", attempt))
	}
}

// actUntil stops an agent, one, whose programs hold locks for which programs of another agent wait. It returns those that did not
// act any more when their agent was stopped, because a busy machine had kept them from it.
func actUntil(t *testing.T, one, two *recipes, clients string, all []clocked, lock string) (again []clocked) {
	var firsts, nexts []*program
	for i, c := range all {
		var args []string
		var first *program
		begin := func(attempt int) {
			args = append(slices.Clone(printsWorks[c.language]), clients, fmt.Sprintf("%s-%d-%d", lock, i, attempt))
			first = one.program(append(append(c.in, args...), fmt.Sprint(c.step))...)
			first.works(0)
			first.write("step\n")
		}
		begin(0)
		// On a busy machine, a program may need too long to compare the agent's clocks with its own. Then it asks the agent
		// after each line, and goes on. No program is that slow each time.
		for attempt := 1; c.step > 0 && !first.stops(); attempt++ {
			require.Less(t, attempt, 30, "%s: it acts on, although one of its clocks is past until", c.name)
			kill(first.Cmd)
			begin(attempt)
		}
		firsts, nexts = append(firsts, first), append(nexts, two.program(append(args, "0")...))
	}
	two.eventually("the next programs wait", func() bool { return len(two.all()) == len(all) })
	time.Sleep(4 * time.Second) // so that the time of day has stepped while the agent's lines arrive
	stopped := time.Now().UnixMilli()
	require.NoError(t, one.agent.Process.Signal(syscall.SIGSTOP))
	for i, c := range all {
		nexts[i].works(0)
		worked := map[int64][]int64{}
		works(t, nexts[i].output, worked)
		works(t, firsts[i].output, worked)
		tokens := takesTurns(t, worked)
		require.Len(t, tokens, 2, c.name)
		last := slices.Max(worked[tokens[0]])
		t.Logf("%s: acts until %d ms after the agent was stopped, the next program acts %d ms later", c.name, last-stopped, slices.Min(worked[tokens[1]])-last)
		if c.step > 0 {
			assert.Less(t, last, stopped, "%s: one of its clocks is past until", c.name)
		} else if last <= stopped {
			again = append(again, c)
		}
	}
	for _, p := range append(firsts, nexts...) {
		kill(p.Cmd)
	}
	return again
}

// works waits until the program has worked after that time.
func (p *program) works(after int64) {
	p.eventually("it works", func() bool { return p.last() > after })
}

// stops reports whether the program does not work any more, although lines of its agent arrive.
func (p *program) stops() bool {
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if p.last() < time.Now().Add(-4*time.Second).UnixMilli() {
			return true
		}
	}
	return false
}

// last returns when the program has worked last, or 0.
func (p *program) last() (at int64) {
	worked := map[int64][]int64{}
	works(p.recipes, p.output, worked)
	for _, times := range worked {
		at = max(at, slices.Max(times))
	}
	return at
}
