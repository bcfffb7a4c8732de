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
	d := dumpsCore(t, "&lease=1m")
	assert.False(t, d.held.Before(d.dumped), "the next program had the lock %v before the core dump was complete", d.dumped.Sub(d.held))
	assert.Less(t, d.held.Sub(d.ended), 20*time.Second, "the lock was released, and has not expired")
	t.Logf("core dump of %d MB: %v; the next program had the lock %v later", d.size>>20, d.ended.Sub(d.began), d.held.Sub(d.ended))
}

// With stall=, a program that dumps core for long loses its lock, because it does not read its lines.
func TestAProgramThatDumpsCoreForLongLosesItsLockIfItAskedForIt(t *testing.T) {
	t.Parallel()
	lease, stall := 6*time.Second, time.Second
	if *agentCore > 32 {
		lease = 2 * time.Second // the dump is to take longer
	}
	d := dumpsCore(t, fmt.Sprintf("&lease=%v&stall=%v", lease, stall))
	if took := d.ended.Sub(d.began); took > lease+2*stall {
		assert.Less(t, d.held.Sub(d.began), took, "the agent sends heartbeats for a program that dumps core")
	}
	t.Logf("core dump of %d MB: %v; the next program had the lock %v after its beginning", d.size>>20, d.ended.Sub(d.began), d.held.Sub(d.began))
}

// coreDump is what happened when a program dumped core and another one waited for its lock.
type coreDump struct {
	began, dumped, ended, held time.Time
	size                       int64 // of the dump, or 0 if this machine keeps it elsewhere
}

func dumpsCore(t *testing.T, parameters string) (d coreDump) {
	e, path := newDatabase(t)
	a, b := twoAgents(t, path, e.Addr())
	p := a.job("job", parameters)
	token := a.holder("job", 0)
	require.Equal(t, fmt.Sprint(token), <-p.held)
	p.order(fmt.Sprintf("fill %d", *agentCore))
	require.Equal(t, "filled", <-p.held)
	next := b.job("job", parameters)
	b.eventually("the next program waits", func() bool { return b.state("job") == "waiting" })
	d.began = time.Now()
	p.order("abort")
	held := make(chan time.Time, 1)
	go func() { <-next.held; held <- time.Now() }()
	_ = p.command.Wait()
	d.ended = time.Now()
	select {
	case <-held:
	case <-time.After(patience):
		require.Fail(t, "no program holds the lock")
	}
	b.eventually("the next program works", func() bool { info, err := os.Stat(next.log); return err == nil && info.Size() > 0 })
	worked := map[int64][]int64{}
	works(t, next.log, worked)
	d.held = time.Now().Add(time.Duration(slices.Min(worked[b.token("job")])-bootMillis()) * time.Millisecond)
	works(t, p.log, worked)
	takesTurns(t, worked)
	cores, err := filepath.Glob(filepath.Join(a.dir, "core*"))
	require.NoError(t, err)
	for _, core := range cores {
		info, err := os.Stat(core)
		require.NoError(t, err)
		d.dumped, d.size = info.ModTime(), info.Size()
		require.NoError(t, os.Remove(core))
	}
	return d
}
