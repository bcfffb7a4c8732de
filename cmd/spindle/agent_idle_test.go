//go:build linux

package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var agentIdle = flag.Duration("agent-idle", 11*time.Second, "how long clients of an agent wait for a lock; many HTTP clients give up after 300 s of silence")

// A program waits for a lock for as long as it takes, whichever client it uses: the agent sends a line every 5 s, so that
// no client's time limit on reading ends the wait.
func TestClientsWaitForLong(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	_, agent := twoAgents(t, path, e.Addr())
	agent.classes = compileJava(t)
	clients, err := filepath.Abs("../../clients")
	require.NoError(t, err)
	waits := map[string]func(name string) *program{
		"curl": func(name string) *program {
			return agent.program("curl", "-sN", "--unix-socket", agent.socket(), "-X", "POST", "http://agent/v1/locks?name="+name)
		},
		"sh":   func(name string) *program { return agent.hold("locks?name="+name, "echo", "held") },
		"java": agent.example,
		"python": func(name string) *program {
			return agent.program("python3", "-c", `
import sys
sys.path.insert(0, sys.argv[1] + "/python")
from spindle_lock import lock
with lock(sys.argv[2]) as held:
    print("held", flush=True)
`, clients, name)
		},
		"asyncio": func(name string) *program {
			return agent.program("python3", "-c", `
import asyncio, sys
sys.path.insert(0, sys.argv[1] + "/python")
from spindle_lock import aio
async def main():
    async with aio.lock(sys.argv[2]) as held:
        print("held", flush=True)
asyncio.run(main())
`, clients, name)
		},
		"node": func(name string) *program {
			return agent.program("node", "--input-type=module", "-e", `
const [clients, name] = process.argv.slice(1);
const { lock } = await import(clients + '/node/src/index.js');
await lock(name, async () => console.log('held'));
`, clients, name)
		},
	}
	var locks []string
	for name := range waits {
		locks = append(locks, "&name="+name)
	}
	holder := &worker{log: filepath.Join(agent.dir, "holder"), quiet: true, env: []string{"WORKER_LOCKS=" + strings.Join(locks, " ")}}
	agent.request = "/v1/locks?lease=10s"
	agent.start(holder)
	t.Cleanup(func() { kill(holder.command) })
	agent.eventually("all locks are held", func() bool { return len(agent.held()) == len(waits) })
	var all []*program
	for name, start := range waits {
		all = append(all, start(name))
	}
	agent.eventually("all clients wait", func() bool { return len(agent.all()) == 2*len(waits) })
	lines := agent.idleLines("/v1/locks?name=curl", *agentIdle)
	assert.GreaterOrEqual(t, lines, int(*agentIdle/(5*time.Second))-1, "empty lines in %v", *agentIdle)
	agent.eventually("all clients still wait, and only these", func() bool { return len(agent.all()) == 2*len(waits) })
	kill(holder.command)
	for _, p := range all {
		p.says("held")
	}
}

// idleLines waits for a lock for so long, and returns the number of empty lines that it has read meanwhile.
func (r *recipes) idleLines(path string, d time.Duration) int {
	conn, err := net.Dial("unix", r.socket())
	require.NoError(r, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", path)
	require.NoError(r, err)
	require.NoError(r, conn.SetReadDeadline(time.Now().Add(d)))
	text, err := io.ReadAll(conn)
	require.ErrorContains(r, err, "timeout")
	_, lines, _ := strings.Cut(string(text), `"waiting"}`+"\n")
	return strings.Count(lines, "\n")
}
