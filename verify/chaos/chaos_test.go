//go:build chaos && unix

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/spindletest"
)

var (
	chaosFor = flag.Duration("chaos.for", 0, "how long the attacks of each test go on, and up to 30 s more until they have shown enough; 0: 8 s, or 16 s if SPINDLE_ALL_CASES is set")
	seedFlag = flag.Uint64("chaos.seed", 0, "the seed of the attacks; 0: a new one")
	keepIn   = flag.String("chaos.keep", "", "keep histories and logs in this directory, even of tests that pass")
)

func TestMain(m *testing.M) {
	subprocess.Main(runCandidate)
	flag.Parse()
	os.Exit(m.Run())
}

const (
	lease    = 600 * time.Millisecond
	teamSize = 3
	// settle is how long a lock can be without a holder after the last fault: a client that was cut off reconnects only
	// after a pause, which has grown in the meantime.
	settle = 30 * time.Second
	// stretch is how long a team is under attack before it recovers.
	stretch = 2 * time.Minute
)

const (
	registerGoogleSQL  = `CREATE TABLE register (id INT64 NOT NULL, value INT64, token INT64, count INT64) PRIMARY KEY (id)`
	registerPostgreSQL = `CREATE TABLE register (id bigint NOT NULL PRIMARY KEY, value bigint, token bigint, count bigint)`
)

func needEmulator(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
}

// grounds contain the locks. Each has its own emulator, which also injects faults: it aborts one commit in twenty. When a
// second transaction starts, it aborts the current one, with a probability that differs between the grounds.
var grounds = []struct {
	lock     string
	postgres bool
	flags    []string
}{
	{"a", false, []string{"--enable_fault_injection"}},
	{"b", true, []string{"--enable_fault_injection", "--abort_current_transaction_probability=60"}},
	{"c", false, []string{"--enable_fault_injection", "--abort_current_transaction_probability=5"}},
}

func newDatabase(t *testing.T, postgres bool, flags ...string) *spindletest.Database {
	if postgres {
		return spindletest.New(t, spindletest.Private(flags...), spindletest.PostgreSQL(), spindletest.WithDDL(registerPostgreSQL, referencePostgreSQL))
	}
	return spindletest.New(t, spindletest.Private(flags...), spindletest.WithDDL(registerGoogleSQL, referenceGoogleSQL))
}

func TestChaos(t *testing.T) {
	h := chaos(t, teamSize, candidate{Lease: lease}, func(team *team, mended int64) {
		ok := team.h.await(settle, func() bool { return team.h.accepted(team.base.Lock, mended) > 0 })
		assert.True(t, ok, "lock %s: no write was accepted in %v after the last fault", team.base.Lock, settle)
	})
	// Most requests are to processes that do not lead, or that are attacked themselves.
	assert.True(t, h.given[kindSteppedDown] > 0 || h.faults["StepDown"] < 20, "no StepDown came through")
	assert.True(t, h.given[kindHandover] > 0 || h.faults["request"] < 30, "no request of %d was answered", h.faults["request"])
}

// chaos attacks a team of such candidates on each of the grounds, and requires that it recovers. recovers waits until a
// team is in the required state again, once the attacks have stopped for a while.
func chaos(t *testing.T, size int, base candidate, recovers func(team *team, mended int64)) *history {
	needEmulator(t)
	goesOn := howLong()
	if end, ok := t.Deadline(); ok {
		require.Greater(t, time.Until(end), goesOn+3*settle, "-timeout must leave time for -chaos.for")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	h := newHistory(t)
	// t.Log is not used, because its output is lost if the test binary ends before the test does.
	fmt.Printf("chaos: -chaos.seed %d makes the same attacks; history and logs are in %s while it runs\n", seed, h.dir)
	start := time.Now()
	var teams []*team
	for _, g := range grounds {
		db := newDatabase(t, g.postgres, g.flags...)
		base.Lock, base.Database, base.Table, base.Handover = g.lock, db.Path, db.Table, true
		base.Postgres = g.postgres
		teams = append(teams, newTeam(t, h, base, db, size))
	}
	enough := func() bool {
		return float64(len(h.terms)) > goesOn.Seconds()/4 && h.fenced() && (base.Agents == 0 || h.byAgents() > 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(goesOn, func() {
		h.await(settle, enough) // on a slow machine, it takes longer until something is shown
		cancel()
	})
	var all sync.WaitGroup
	for i, team := range teams {
		team.dice, team.turn = rand.New(rand.NewPCG(seed, uint64(i))), seed+uint64(i)
		all.Go(func() {
			for ; ctx.Err() == nil; team.turn++ {
				team.torment(ctx)
				recovers(team, now())
			}
			team.terminate()
			team.finish()
		})
	}
	all.Wait()
	requireOneClock(t, start)
	v := h.check()
	t.Log(summary(h, v, base.Lease, time.Since(start), seed, start))
	v.require(t)
	assert.True(t, enough(), "%d terms, %d by agents, a write was fenced: %t; too little to show anything", len(h.terms), h.byAgents(), h.fenced())
	return h
}

func howLong() time.Duration {
	switch {
	case *chaosFor > 0:
		return *chaosFor
	case fleet.Brief():
		return 8 * time.Second
	}
	return 16 * time.Second
}

// requireOneClock fails if the machine's clock was set, because the intervals of different processes are then not
// comparable, and the result of a check means nothing.
func requireOneClock(t *testing.T, start time.Time) {
	t.Helper()
	now := time.Now()
	monotonic, wall := now.Sub(start), now.Round(0).Sub(start.Round(0))
	assert.InDelta(t, monotonic, wall, float64(20*time.Millisecond), "the machine's clock was set during the test: run it again")
}

// summary formats the result for people.
func summary(h *history, v verdict, lease, took time.Duration, seed uint64, start time.Time) string {
	outcomes := map[string]int{}
	for _, w := range h.writes {
		outcomes[w.outcome]++
	}
	return fmt.Sprintf(`%v, %d locks, %d processes, lease %v, seed %d; %d terms of %d elections
faults: %v
handovers by how they were asked for: %v
writes: %v; %d of unknown outcome have happened
longest without a holder: %.1f leases (lock %s, after %v)
overlaps %d, tokens out of order %d, miscounted %d, linearizable: %s`,
		took.Round(time.Second), len(h.locks()), h.started, lease, seed, len(h.terms), h.joined, h.faults, h.given, outcomes, v.unknownSeen,
		float64(v.longestGap)/float64(lease), v.gapOf, time.Duration(v.gapAt-start.UnixNano()).Round(100*time.Millisecond),
		len(v.overlaps), len(v.disorder), len(v.miscounted), answer(v))
}

func answer(v verdict) string {
	switch {
	case len(v.notLinear) > 0:
		return "no: " + strings.Join(v.notLinear, ", ")
	case len(v.undecided) > 0:
		return "not decided: " + strings.Join(v.undecided, ", ")
	}
	return "yes"
}
