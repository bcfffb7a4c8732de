//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var agentCore = flag.Int("agent-core", 32, "the size of the core dumps of programs of agents, in megabytes; with 1500, a dump takes longer than a lease")

// While a program dumps core, its process has not ended, so the agent keeps its lock. Then the lock is free at once.
func TestAProgramThatDumpsCoreKeepsItsLockUntilItsProcessHasEnded(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	a, b := twoAgents(t, path, e.Addr())
	p := a.job("job", "&lease=1m")
	require.Equal(t, fmt.Sprint(a.holder("job", 0)), <-p.held)
	p.order(fmt.Sprintf("fill %d", *agentCore))
	require.Equal(t, "filled", <-p.held)
	next := b.job("job", "&lease=1m")
	b.eventually("the next program waits", func() bool { return b.state("job") == "waiting" })
	began := time.Now()
	p.order("abort")
	_ = p.command.Wait()
	ended := time.Now()
	b.eventually("the next program works", func() bool { info, err := os.Stat(next.log); return err == nil && info.Size() > 0 })
	worked := map[int64][]int64{}
	works(t, next.log, worked)
	held := time.Now().Add(time.Duration(slices.Min(worked[b.token("job")])-bootMillis()) * time.Millisecond)
	assert.Less(t, held.Sub(ended), 20*time.Second, "the lock was released, and has not expired")
	works(t, p.log, worked)
	takesTurns(t, worked)
	cores, err := filepath.Glob(filepath.Join(a.dir, "core*")) // none if this machine keeps them elsewhere
	require.NoError(t, err)
	for _, core := range cores {
		info, err := os.Stat(core)
		require.NoError(t, err)
		assert.False(t, held.Before(info.ModTime()), "the next program had the lock %v before the core dump was complete", info.ModTime().Sub(held))
		t.Logf("core dump of %d MB: %v; the next program had the lock %v later", info.Size()>>20, ended.Sub(began), held.Sub(ended))
		require.NoError(t, os.Remove(core))
	}
}
