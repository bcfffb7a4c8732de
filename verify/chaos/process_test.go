//go:build chaos && unix

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/spindletest"
)

// team consists of the candidates for one lock, or the members of one group. Each team has its own database, because
// the emulator runs one read-write transaction at a time in each database.
type team struct {
	tb      testing.TB
	h       *history
	base    candidate
	locks   []string // the lock, or those of the group's partitions
	extra   string   // of the partition that only canaries have
	members []*member
	dice    *rand.Rand // of what befalls it
	turn    uint64     // how often it has recovered, from a number on that the seed gives

	db *spanner.Client // its own
}

// member is one candidate: one process at a time, and its network.
type member struct {
	team  *team
	name  string
	link  *network.Link // shared by its agent
	agent *agent        // or nil
	busy  atomic.Bool   // the nemesis is at it
	mend  func()        // what it has damaged: the nemesis's

	mu      sync.Mutex
	process *process
}

type process struct {
	*subprocess.Child
	who      string
	handover bool
	told     atomic.Bool // to end
}

// processes numbers the processes of this test binary, so that all the values that they write are different.
var processes atomic.Int64

const valuesOfAProcess = 1 << 32

func newTeam(tb testing.TB, h *history, base candidate, db *spindletest.Database, size int) *team {
	t := &team{tb: tb, h: h, base: base, locks: []string{base.Lock}, db: db.Client}
	if base.Partitions > 0 {
		all := partitionLocks(canary(base))
		t.locks, t.extra = all[:base.Partitions], all[base.Partitions]
		h.seldom[t.extra] = true
	}
	for i := range size {
		t.members = append(t.members, &member{team: t, name: fmt.Sprintf("%s%d", base.Lock, i+1), link: newLink(tb, db.Host)})
	}
	tb.Cleanup(t.kill)
	for i, m := range t.members {
		if i >= size-base.Agents {
			m.newAgent()
		}
		m.start()
		require.NotNil(tb, m.current())
	}
	return t
}

// start starts the member's next process. In runs with handovers, two of three processes take part, and half of these
// have a higher priority than the others. In a group, every other process reclaims its predecessor's partitions.
func (m *member) start() { m.startAs(m.team.base) }

func (m *member) startAs(c candidate) {
	n := processes.Add(1)
	c.Who, c.FirstValue = fmt.Sprintf("%s.%d", m.name, n), n*valuesOfAProcess
	c.Handover, c.Priority = c.Handover && n%3 > 0, 8+int(n%2)
	c.Reclaim = c.Partitions > 0 && n%2 > 0
	if m.agent != nil {
		c.Socket = m.agent.socket()
		m.team.h.addAgent(c.Who)
	}
	p, err := m.spawn(c)
	if err != nil {
		m.team.tb.Errorf("cannot start %s: %v", c.Who, err)
		return
	}
	m.mu.Lock()
	m.process = p
	m.mu.Unlock()
}

func (m *member) spawn(c candidate) (*process, error) {
	arg, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(m.team.h.dir, c.Who+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{who: c.Who, handover: c.Handover}
	p.Child, err = subprocess.Command{
		Args:   []string{string(arg)},
		Env:    []string{"SPANNER_EMULATOR_HOST=" + m.link.Addr(), "GORACE=halt_on_error=1 atexit_sleep_ms=0"},
		Stderr: log,
		Line:   m.hear,
		Ended:  func(err error) { m.ended(p, err) },
	}.Start()
	return p, err
}

func (m *member) hear(line string) {
	var r record
	if json.Unmarshal([]byte(line), &r) == nil { // or it was cut off in the middle of a line
		m.team.h.add(r)
	}
}

// ended records the end of p. A process must not end without an order, or in a different way, because the race detector
// also ends a process.
func (m *member) ended(p *process, err error) {
	m.team.h.add(record{Kind: kindExit, Lock: m.team.base.Lock, Who: p.who, Note: text(err)})
	var exit *exec.ExitError
	if !p.told.Load() || errors.As(err, &exit) && exit.ExitCode() > 0 {
		m.team.tb.Errorf("%s ended by itself, or badly: %v: see its log", p.who, err)
	}
}

func (m *member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

func (m *member) signal(s syscall.Signal) { _ = m.current().Signal(s) }

// kill ends the process as kill -9 does.
func (m *member) kill() {
	p := m.current()
	p.told.Store(true)
	p.Kill()
}

// terminate sends SIGTERM to the process.
func (m *member) terminate() {
	p := m.current()
	p.told.Store(true)
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
	case <-time.After(10*time.Second + 10*m.team.base.Lease):
		m.team.tb.Errorf("%s does not end on SIGTERM", p.who)
		m.kill()
	}
}

// order is carried out if the process is running.
func (m *member) order(c command) {
	if line, err := json.Marshal(c); err == nil {
		_ = m.current().Send(string(line))
	}
}

// command is for a scripted process.
func (m *member) command(c command) {
	m.team.tb.Helper()
	line, err := json.Marshal(c)
	require.NoError(m.team.tb, err)
	require.NoError(m.team.tb, m.current().Send(string(line)))
}

// next returns a different member.
func (m *member) next() *member {
	members := m.team.members
	return members[(slices.Index(members, m)+1)%len(members)]
}

func (t *team) kill() {
	for _, m := range t.members {
		if m.current() != nil {
			m.kill()
		}
		if m.agent != nil && m.agent.current() != nil {
			m.agent.end(syscall.SIGKILL)
		}
	}
}

func (t *team) terminate() {
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(func() {
			m.terminate()
			if m.agent != nil {
				m.agent.end(syscall.SIGTERM)
			}
		})
	}
	all.Wait()
}

// member finds a process's member, or nil.
func (t *team) member(who string) *member {
	for _, m := range t.members {
		if m.current().who == who {
			return m
		}
	}
	return nil
}

// elected waits for a holder after that time.
func (t *team) elected(after int64, limit time.Duration) (found term) {
	t.tb.Helper()
	ok := t.h.await(limit, func() bool {
		holder := t.h.holder(t.base.Lock, after)
		if holder != nil {
			found = *holder
		}
		return holder != nil
	})
	require.True(t.tb, ok, "lock %s has no holder after %v", t.base.Lock, limit)
	return found
}

// finish reads every row of the register, as the last operation on it.
func (t *team) finish() {
	t.tb.Helper()
	for _, lock := range append(slices.Clone(t.locks), t.extra) {
		for _, row := range t.h.rows(lock) {
			start := now()
			r := record{Row: row}
			if assert.NoError(t.tb, readRegister(t.tb.Context(), t.db.Single(), &r)) {
				t.h.add(record{Kind: kindFinal, Lock: lock, Row: row, Value: r.Prev, Token: r.PrevToken, Count: r.Count, From: start})
			}
		}
	}
}

// newLink returns the network of one candidate.
func newLink(tb testing.TB, host string) *network.Link {
	link, err := network.NewLink(host)
	require.NoError(tb, err)
	tb.Cleanup(link.Close)
	return link
}
