//go:build versions && unix

package versions

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/spindletest"
)

// patience is how long a test waits for what must happen. It bounds a failing run, and is no promise.
const patience = time.Minute

const register = "CREATE TABLE register (id INT64, value INT64) PRIMARY KEY (id)"

// A scene is one lock, and the processes that compete for it.
type scene struct {
	testing.TB
	db    *spindletest.Database
	table string
	lock  string
	lease time.Duration

	processes []*process
}

// newScene returns a lock on a new database. When the test ends, no two processes may have held the lock at the same time.
func newScene(t *testing.T, lease time.Duration) *scene {
	db := spindletest.New(t, spindletest.WithDDL(register))
	s := &scene{TB: t, db: db, table: db.Table, lock: "job", lease: lease}
	t.Cleanup(s.requireOneHolderAtATime)
	return s
}

// An interval is a part of a term during which its process believed that it held the lock.
type interval struct {
	who, token string
	from, to   int64 // nanoseconds of the machine's clock
}

func (s *scene) requireOneHolderAtATime() {
	var all []interval
	for _, p := range s.processes {
		p.end()
		all = slices.AppendSeq(all, maps.Values(p.held))
	}
	slices.SortFunc(all, func(a, b interval) int { return int(a.from - b.from) })
	for i := 1; i < len(all); i++ {
		assert.Less(s, all[i-1].to, all[i].from, "two holders: %+v, %+v", all[i-1], all[i])
		assert.Less(s, all[i-1].token, all[i].token, "tokens grow; they all have the same length: %+v, %+v", all[i-1], all[i])
	}
}

// A process runs the program of a version.
type process struct {
	*scene
	mode  string
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // what it said, except for the intervals
	over  chan struct{}
	held  map[string]interval // by token; may be read once over is closed

	mu  sync.Mutex
	log bytes.Buffer
}

// start starts the program of a version, in a mode that testdata/program/main.go lists.
func (s *scene) start(mode, version string) *process {
	name := fmt.Sprintf("%s/%d", version, len(s.processes)+1)
	p := &process{scene: s, mode: mode, name: name, lines: make(chan string, 1000), over: make(chan struct{}), held: map[string]interval{}}
	p.cmd = exec.Command(program(version), mode, s.db.Path, s.table, s.lock, name, s.lease.String())
	p.cmd.Env = append(p.cmd.Environ(), s.db.Env()...)
	p.cmd.Stderr = p
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(s, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, p.cmd.Start())
	s.processes = append(s.processes, p)
	go p.read(stdout)
	return p
}

func (p *process) read(stdout io.Reader) {
	defer close(p.over)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if words := strings.Fields(lines.Text()); words[0] == "held" {
			i := interval{who: p.name, token: words[1]}
			fmt.Sscan(words[2]+" "+words[3], &i.from, &i.to)
			p.held[i.token] = i
			continue
		}
		p.lines <- lines.Text()
	}
	_ = p.cmd.Wait() // tests kill it
}

// Write keeps the process's log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) order(format string, args ...any) {
	_, err := fmt.Fprintf(p.stdin, format+"\n", args...)
	require.NoError(p, err)
}

// says waits for a line that begins with one of the words, and returns it. Other lines are skipped, except for failures.
func (p *process) says(first ...string) string {
	p.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-p.lines:
			word, _, _ := strings.Cut(line, " ")
			if slices.Contains(first, word) {
				return line
			}
			require.NotEqual(p, "failed", word, "%s: %s\n%s", p.name, line, p.logged())
		case <-p.over:
			require.FailNow(p, "the process ended", "%s, awaited %q\n%s", p.name, first, p.logged())
		case <-timeout:
			require.FailNow(p, "nothing happened", "%s, awaited %q\n%s", p.name, first, p.logged())
		}
	}
}

// asks asks for the lock. A candidate does so by itself.
func (p *process) asks() {
	if p.mode == "mutex" {
		p.order("lock")
	}
}

// gets waits until the process has got the lock, and returns its token.
func (p *process) gets() string {
	p.Helper()
	word := "elected"
	if p.mode == "mutex" {
		word = "locked"
	}
	_, token, _ := strings.Cut(p.says(word), " ")
	return token
}

// writes writes under a token, and waits for the answer.
func (p *process) writes(token string, answer string) {
	p.Helper()
	p.order("write %s 1", token)
	p.says(answer)
}

// waits fails the test if the process says anything for that long: it must not get the lock.
func (p *process) waits(d time.Duration) {
	p.Helper()
	select {
	case line := <-p.lines:
		require.FailNow(p, "the process does not wait", "%s: %s", p.name, line)
	case <-time.After(d):
	}
}

func (p *process) signal(sig syscall.Signal) { require.NoError(p, p.cmd.Process.Signal(sig)) }

// end kills the process as kill -9 does, unless it has ended.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	for {
		select {
		case <-p.lines: // or read could not send them
		case <-p.over:
			return
		}
	}
}
