//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

var agentFaults = flag.Int("agent-faults", 0, "how many faults programs of agents have, one after the other; 0: 6, or 12 if SPINDLE_ALL_CASES is set")

// site is a machine with an agent and its programs.
type site struct {
	testing.TB
	dir, path, host string
	link            *network.Link // between the agent and Spanner, if the test breaks it
	kernel          string        // if it is older, its version
	request         string        // the request that its programs send
	agent           *exec.Cmd
	workers         []*worker
}

// worker is one program of a site. It runs agentWorker.
type worker struct {
	command *exec.Cmd
	orders  io.WriteCloser
	log     string
	quiet   bool          // it writes no fenced rows
	env     []string      // more of agentWorker's environment
	held    <-chan string // receives each token under which the worker holds the lock
}

func (s *site) socket() string { return filepath.Join(s.dir, "agent.sock") }

func (s *site) startAgent() {
	if s.agent == nil {
		s.Cleanup(s.logIfFailed)
	}
	command := []string{"spindle", "agent", "--listen", "unix:" + s.socket()}
	if s.kernel != "" {
		command = append([]string{"olderkernel", s.kernel}, command...)
	}
	s.agent = exec.Command(command[0], command[1:]...)
	host := s.host
	if s.link != nil {
		host = s.link.Addr()
	}
	s.agent.Env = append(os.Environ(), "SPINDLE_DB="+s.path, "SPANNER_EMULATOR_HOST="+host)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(s, err)
	defer log.Close()
	s.agent.Stderr = log
	require.NoError(s, s.agent.Start())
}

func (s *site) logIfFailed() {
	if text, _ := os.ReadFile(filepath.Join(s.dir, "log")); s.Failed() {
		s.Logf("the log of the agent in %s:\n%s", s.dir, text)
	}
}

// start starts a program. It also replaces a program that has ended.
func (s *site) start(w *worker) {
	held := make(chan string, 1000)
	w.held = held
	w.command = exec.Command("agentworker", s.socket(), s.request, w.log)
	w.command.Dir = s.dir // for core dumps
	w.command.Env = append(append(os.Environ(), "SPANNER_EMULATOR_HOST="+s.host), w.env...)
	if !w.quiet {
		w.command.Env = append(w.command.Env, "SPINDLE_DB="+s.path)
	}
	var err error
	w.orders, err = w.command.StdinPipe()
	require.NoError(s, err)
	out, err := w.command.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, w.command.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			held <- strings.TrimPrefix(lines.Text(), "held ")
		}
	}()
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// works adds the times at which a program worked to the map, by token.
func works(t testing.TB, log string, into map[int64][]int64) {
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var at, token int64
		if n, _ := fmt.Sscan(line, &at, &token); n == 2 && strings.HasSuffix(line, "\n") {
			into[token] = append(into[token], at)
		}
	}
}

// takesTurns checks that no program worked under a token after work under a later one had begun, and returns the tokens
// in order.
func takesTurns(t testing.TB, worked map[int64][]int64) []int64 {
	tokens := slices.Sorted(maps.Keys(worked))
	for i := 1; i < len(tokens); i++ {
		last, next := slices.Max(worked[tokens[i-1]]), slices.Min(worked[tokens[i]])
		assert.LessOrEqual(t, last, next, "work under %d, %d ms after work under %d has begun", tokens[i-1], last-next, tokens[i])
	}
	return tokens
}

const agentFaultLease = 2 * time.Second

// agentFaultKinds are what happens to the program that holds the lock and to its agent. After each of them, another term
// begins.
var agentFaultKinds = []struct {
	name   string
	happen func(*site, *worker)
}{
	{"the program is killed", func(s *site, w *worker) { kill(w.command); s.start(w) }},
	{"the program is killed again", func(s *site, w *worker) { kill(w.command); s.start(w) }}, // twice as often as the others
	{"the program dumps core", func(s *site, w *worker) { w.order("abort"); _ = w.command.Wait(); s.start(w) }},
	{"the program is stopped", func(s *site, w *worker) { stopFor(2*agentFaultLease, w.command); w.order("release") }},
	{"the agent is killed", func(s *site, w *worker) { kill(s.agent); time.Sleep(rand.N(agentFaultLease)); s.startAgent() }},
	{"the agent is stopped", func(s *site, w *worker) { stopFor(2*agentFaultLease, s.agent) }},
	{"the agent is stopped for longer than its program", func(s *site, w *worker) {
		_ = s.agent.Process.Signal(syscall.SIGSTOP)
		stopFor(2*agentFaultLease, w.command)
		time.Sleep(rand.N(agentFaultLease / 4))
		_ = s.agent.Process.Signal(syscall.SIGCONT)
	}},
	{"both are killed", func(s *site, w *worker) { kill(s.agent); kill(w.command); s.start(w); s.startAgent() }},
	{"the program closes its connection", func(s *site, w *worker) { w.order("close") }},
	{"the program releases the lock", func(s *site, w *worker) { w.order("release") }},
	{"replies to the agent are lost", func(s *site, w *worker) { loseReplies(s, rand.N(2*agentFaultLease)); w.order("release") }},
	{"the reply to the release is lost", func(s *site, w *worker) {
		s.link.From.BlackHole()
		w.order("release")
		loseReplies(s, rand.N(2*agentFaultLease))
	}},
	{"the agent is cut off", func(s *site, w *worker) {
		s.link.Cut()
		time.Sleep(rand.N(2 * agentFaultLease))
		s.link.Mend()
		w.order("release")
	}},
}

func (w *worker) order(text string) { _, _ = io.WriteString(w.orders, text+"\n") }

func stopFor(d time.Duration, c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = c.Process.Signal(syscall.SIGCONT)
}

// loseReplies executes what the agent asks of Spanner for so long, but the agent never reads the results.
func loseReplies(s *site, d time.Duration) {
	s.link.From.BlackHole()
	time.Sleep(d)
	s.link.Cut()
	s.link.Mend()
}

// Programs of two agents take turns at holding one lock, while programs and agents are killed, stopped and cut off. According
// to the until that they have read, no two programs ever work at the same time. No fenced write commits after one with a
// later token. And after each fault, the lock is held again.
func TestNoTwoProgramsWorkWhateverHappensToThemAndTheirAgents(t *testing.T) {
	t.Parallel()
	faults := *agentFaults
	switch {
	case faults > 0:
	case fleet.Brief():
		faults = 6
	default:
		faults = 12
	}
	e, path := newDatabase(t, "CREATE TABLE written (token STRING(MAX), written TIMESTAMP OPTIONS (allow_commit_timestamp=true)) PRIMARY KEY (token, written)")
	const lease = agentFaultLease
	var sites []*site
	for range 2 {
		link, err := network.NewLink(e.Addr())
		require.NoError(t, err)
		t.Cleanup(link.Close)
		s := &site{TB: t, dir: t.TempDir(), path: path, host: e.Addr(), link: link, request: "/v1/locks?name=job&lease=" + lease.String()}
		s.startAgent()
		t.Cleanup(func() { kill(s.agent) })
		for i := range 2 {
			w := &worker{log: filepath.Join(s.dir, fmt.Sprint("worker-", i))}
			s.start(w)
			s.workers = append(s.workers, w)
		}
		t.Cleanup(func() {
			for _, w := range s.workers {
				_ = w.command.Process.Signal(syscall.SIGCONT)
				kill(w.command)
			}
		})
		sites = append(sites, s)
	}
	holder := holders(sites)
	first := holder(t)
	kinds := map[string]int{}
	for range faults {
		fault := agentFaultKinds[rand.IntN(len(agentFaultKinds))]
		kinds[fault.name]++
		time.Sleep(rand.N(lease))
		fault.happen(first.site, first.worker)
		next := holder(t)
		if next.worker == nil {
			require.Fail(t, "no program holds the lock", "after: %s", fault.name)
		}
		first = next
	}
	for _, s := range sites {
		for _, w := range s.workers {
			_ = w.command.Process.Signal(syscall.SIGCONT)
			kill(w.command)
		}
	}
	worked := map[int64][]int64{}
	for _, s := range sites {
		for _, w := range s.workers {
			works(t, w.log, worked)
		}
	}
	tokens := takesTurns(t, worked)
	require.Greater(t, len(tokens), faults/2, "the lock changed hands")
	fenced(t, path, e)
	t.Logf("%d faults, %d terms, %d works: %v", faults, len(tokens), len(slices.Concat(slices.Collect(maps.Values(worked))...)), kinds)
}

// held is a program that holds the lock.
type held struct {
	*site
	*worker
}

// holders returns a function that waits for the next program to hold the lock.
func holders(sites []*site) func(t testing.TB) held {
	var last string
	return func(testing.TB) held {
		deadline := time.Now().Add(3 * patience)
		for time.Now().Before(deadline) {
			for _, s := range sites {
				for _, w := range s.workers {
					select {
					case token := <-w.held:
						if token > last {
							last = token
							return held{s, w}
						}
					default:
					}
				}
			}
			time.Sleep(time.Millisecond)
		}
		return held{}
	}
}

// fenced checks that all writes under a token come before the writes under later tokens.
func fenced(t *testing.T, path string, e *emulator.Emulator) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db, err := e.Connect(ctx, path)
	require.NoError(t, err)
	defer db.Close()
	type row struct {
		token string
		at    time.Time
	}
	var rows []row
	err = db.Single().Read(ctx, "written", spanner.AllKeys(), []string{"token", "written"}).Do(func(r *spanner.Row) error {
		var w row
		if err := r.Columns(&w.token, &w.at); err != nil {
			return err
		}
		rows = append(rows, w)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, rows, "programs have written")
	slices.SortFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	assert.True(t, slices.IsSortedFunc(rows, func(a, b row) int { return cmp.Compare(a.token, b.token) }), "a fenced write committed under an old token")
}
