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
)

var agentFaults = flag.Int("agent-faults", 12, "how many faults programs of agents have, one after the other")

// site is a machine with an agent and its programs.
type site struct {
	testing.TB
	dir, path, host string
	request         string // the request that its programs send
	agent           *exec.Cmd
	workers         []*worker
}

// worker is one program of a site. It runs agentWorker.
type worker struct {
	command *exec.Cmd
	orders  io.WriteCloser
	log     string
	quiet   bool          // it writes no fenced rows
	held    <-chan string // receives each token under which the worker holds the lock
}

func (s *site) socket() string { return filepath.Join(s.dir, "agent.sock") }

func (s *site) startAgent() {
	s.agent = exec.Command("spindle", "agent", "--listen", "unix:"+s.socket())
	s.agent.Env = append(os.Environ(), "SPINDLE_DB="+s.path, "SPANNER_EMULATOR_HOST="+s.host)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(s, err)
	defer log.Close()
	s.agent.Stderr = log
	require.NoError(s, s.agent.Start())
}

// start starts a program. It also replaces a program that has ended.
func (s *site) start(w *worker) {
	held := make(chan string, 1000)
	w.held = held
	w.command = exec.Command("agentworker", s.socket(), s.request, w.log)
	w.command.Env = append(os.Environ(), "SPANNER_EMULATOR_HOST="+s.host)
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

// tokens adds the times at which programs worked to the map, by token.
func (s *site) tokens(into map[int64][]int64) {
	for _, w := range s.workers {
		text, err := os.ReadFile(w.log)
		require.NoError(s, err)
		for line := range strings.Lines(string(text)) {
			var at, token int64
			if n, _ := fmt.Sscan(line, &at, &token); n == 2 && strings.HasSuffix(line, "\n") {
				into[token] = append(into[token], at)
			}
		}
	}
}

// Programs of two agents take turns at holding one lock, while programs and agents are killed and stopped. According to
// the until that they have read, no two programs ever work at the same time. No fenced write commits after one with a
// later token. And after each fault, the lock is held again.
func TestNoTwoProgramsWorkWhateverHappensToThemAndTheirAgents(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t, "CREATE TABLE written (token STRING(MAX), written TIMESTAMP OPTIONS (allow_commit_timestamp=true)) PRIMARY KEY (token, written)")
	const lease = time.Second
	var sites []*site
	for range 2 {
		s := &site{TB: t, dir: t.TempDir(), path: path, host: e.Addr(), request: "/v1/locks?name=job&lease=" + lease.String()}
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
	t.Cleanup(func() {
		for _, s := range sites {
			if text, _ := os.ReadFile(filepath.Join(s.dir, "log")); t.Failed() {
				t.Logf("%s", text)
			}
		}
	})
	holder := holders(sites)
	first := holder(t)
	for i := range *agentFaults {
		s, w := first.site, first.worker
		fault := rand.IntN(9)
		time.Sleep(rand.N(lease))
		switch fault {
		case 0, 1:
			kill(w.command)
			s.start(w)
		case 2:
			_ = w.command.Process.Signal(syscall.SIGSTOP)
			time.Sleep(2 * lease)
			_ = w.command.Process.Signal(syscall.SIGCONT)
			_, _ = io.WriteString(w.orders, "release\n")
		case 3:
			kill(s.agent)
			time.Sleep(rand.N(lease))
			s.startAgent()
		case 4:
			_ = s.agent.Process.Signal(syscall.SIGSTOP)
			time.Sleep(2 * lease)
			_ = s.agent.Process.Signal(syscall.SIGCONT)
		case 5:
			_ = w.command.Process.Signal(syscall.SIGSTOP)
			_ = s.agent.Process.Signal(syscall.SIGSTOP)
			time.Sleep(2 * lease)
			_ = w.command.Process.Signal(syscall.SIGCONT)
			time.Sleep(rand.N(lease / 4))
			_ = s.agent.Process.Signal(syscall.SIGCONT)
		case 6:
			kill(s.agent)
			kill(w.command)
			s.start(w)
			s.startAgent()
		case 7:
			_, _ = io.WriteString(w.orders, "close\n")
		case 8:
			_, _ = io.WriteString(w.orders, "release\n")
		}
		next := holder(t)
		if next.worker == nil {
			require.Fail(t, "no program holds the lock", "after fault %d of kind %d", i, fault)
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
		s.tokens(worked)
	}
	tokens := slices.Sorted(maps.Keys(worked))
	require.Greater(t, len(tokens), *agentFaults/2, "the lock changed hands")
	for i := 1; i < len(tokens); i++ {
		last, next := slices.Max(worked[tokens[i-1]]), slices.Min(worked[tokens[i]])
		assert.LessOrEqual(t, last, next, "work under %d, %d ms after work under %d has begun", tokens[i-1], last-next, tokens[i])
	}
	fenced(t, path, e)
	t.Logf("%d faults, %d terms, %d works", *agentFaults, len(tokens), len(slices.Concat(slices.Collect(maps.Values(worked))...)))
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
		deadline := time.Now().Add(patience)
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
