//go:build linux

package main

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var agentHolders = flag.Int("agent-holders", 15, "how many locks the agent holds that is killed and started again, a multiple of five")

// An agent with many holders is killed and started again, while programs of another agent wait for the same locks. All
// locks are held again, and no two programs work under one lock at a time. If a program's work has returned, the program
// can release its lock at the new agent: then the next holder does not wait until the lock has expired.
func TestTheHoldersOfAnAgentThatIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	const lease, programs = 18 * time.Second, 5 // long beside the seconds that all of it takes on a busy machine
	each := *agentHolders / programs
	var sites []*recipes
	for range 2 {
		s := &site{TB: t, dir: t.TempDir(), path: path, host: e.Addr(), request: "/v1/locks?lease=" + lease.String()}
		r := &recipes{site: s}
		s.startAgent()
		t.Cleanup(func() { kill(s.agent) })
		r.eventually("the agent listens", func() bool { return r.ask(http.MethodGet, "/livez", &struct{}{}) == nil })
		for p := range programs {
			w := &worker{log: filepath.Join(s.dir, fmt.Sprint("worker-", p)), quiet: true, env: []string{"WORKER_LOCKS=" + strings.Join(locksOf(p, each), " ")}}
			if p%2 == 0 {
				w.env = append(w.env, "WORKER_RETURNS=1")
			}
			s.start(w)
			s.workers = append(s.workers, w)
			t.Cleanup(func() { kill(w.command) })
		}
		sites = append(sites, r)
		r.eventually("it has all holds", func() bool { return len(sites[0].held()) == programs*each && len(r.all()) == programs*each })
	}
	before := sites[0].held()
	killed := bootMillis()
	kill(sites[0].agent)
	sites[0].startAgent()
	require.Eventually(t, func() bool {
		again := sites[1].held()
		if sites[0].ask(http.MethodGet, "/livez", &struct{}{}) == nil {
			again = append(again, sites[0].held()...)
		}
		held := map[string]bool{}
		for _, h := range again {
			held[h.Names[0]] = true
		}
		return len(held) == programs*each
	}, 3*patience, 100*time.Millisecond, "all locks are held again")
	time.Sleep(lease / 20) // so that the last holder has worked
	for _, s := range sites {
		for _, w := range s.workers {
			kill(w.command)
		}
	}
	var returned, expired []time.Duration
	for p := range programs {
		for _, lock := range locksOf(p, each) {
			worked := map[int64][]int64{}
			for _, s := range sites {
				works(t, s.workers[p].log+lock, worked)
			}
			takesTurns(t, worked)
			again := heldAgain(worked, tokenOf(before, lock))
			require.NotZero(t, again, "no program has worked under %s since", lock)
			if p%2 == 0 {
				returned = append(returned, time.Duration(again-killed)*time.Millisecond)
			} else {
				expired = append(expired, time.Duration(again-killed)*time.Millisecond)
			}
		}
	}
	slices.Sort(returned)
	slices.Sort(expired)
	t.Logf("held again after the kill: released ones after %v (median) to %v, others after %v to %v (%.2f leases)", returned[len(returned)/2], slices.Max(returned),
		expired[len(expired)/2], slices.Max(expired), slices.Max(expired).Seconds()/lease.Seconds())
	assert.Less(t, slices.Min(returned), slices.Min(expired)*2/3, "a release at the new agent frees no lock")
}

// locksOf returns the names of a program's locks, as the parameters of requests.
func locksOf(program, each int) (locks []string) {
	for i := range each {
		locks = append(locks, fmt.Sprintf("&name=job-%d-%d", program, i))
	}
	return locks
}

// all returns all holds of the agent.
func (r *recipes) all() []heldBy {
	var all struct{ Holds []heldBy }
	require.NoError(r, r.ask(http.MethodGet, "/v1/holds", &all))
	return all.Holds
}

// held returns the holds that have their lock.
func (r *recipes) held() []heldBy {
	return slices.DeleteFunc(r.all(), func(h heldBy) bool { return h.State != "held" })
}

func tokenOf(holds []heldBy, lock string) int64 {
	for _, h := range holds {
		if "&name="+h.Names[0] == lock {
			return h.Token
		}
	}
	return 0
}

// heldAgain returns when a program first worked under a later token, or 0.
func heldAgain(worked map[int64][]int64, token int64) (first int64) {
	for later, times := range worked {
		if at := slices.Min(times); later > token && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}
