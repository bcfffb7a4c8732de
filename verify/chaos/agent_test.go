//go:build chaos && unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
)

// Candidates and programs of agents compete for the same locks. Each of these programs has an agent of its own, and
// whatever happens to a candidate's process happens to the program or to its agent.
func TestAgentChaos(t *testing.T) {
	command := buildCommand(t)
	h := chaos(t, teamSize, candidate{Lease: agentLease, Agents: 2, Command: command}, func(team *team, mended int64) {
		ok := team.h.await(settle, func() bool { return team.h.accepted(team.base.Lock, mended) > 0 })
		assert.True(t, ok, "lock %s: no write was accepted in %v after the last fault", team.base.Lock, settle)
	})
	byAgent := h.byAgents()
	t.Logf("%d of %d terms are of programs of agents", byAgent, len(h.terms))
	if len(h.terms) >= 40 { // fewer may be of one kind by chance
		assert.Greater(t, byAgent, len(h.terms)/5, "terms of programs of agents")
		assert.Less(t, byAgent, len(h.terms), "no candidate has led")
	}
}

// agentLease is longer than the lease of candidates alone, because an agent is one more process that has to run in time.
const agentLease = time.Second

// buildCommand builds the command spindle, and returns its path.
func buildCommand(t *testing.T) string {
	needEmulator(t)
	path := filepath.Join(t.TempDir(), "spindle")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "../../cmd/spindle").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// agent is the agent of a member, one process at a time.
type agent struct {
	member *member
	dir    string

	mu      sync.Mutex
	process *agentProcess
}

type agentProcess struct {
	*exec.Cmd
	told atomic.Bool // to end
	done chan struct{}
}

func (a *agent) socket() string { return filepath.Join(a.dir, "agent.sock") }

func (m *member) newAgent() {
	dir, err := os.MkdirTemp("", "spindle-agent-") // the path of a socket must be short
	require.NoError(m.team.tb, err)
	m.team.tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	m.agent = &agent{member: m, dir: dir}
	m.agent.start()
}

func (a *agent) start() {
	t := a.member.team
	log, err := os.OpenFile(filepath.Join(t.h.dir, a.member.name+".agent.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.tb.Errorf("the agent's log: %v", err)
		return
	}
	defer log.Close()
	p := &agentProcess{Cmd: exec.Command(t.base.Command, "agent", "--listen", "unix:"+a.socket(), "--db", t.base.Database, "--table", t.base.Table), done: make(chan struct{})}
	p.Env = append(os.Environ(), "SPANNER_EMULATOR_HOST="+a.member.link.Addr())
	p.Stderr = log
	if err := p.Start(); err != nil {
		t.tb.Errorf("can't start an agent: %v", err)
		return
	}
	a.mu.Lock()
	a.process = p
	a.mu.Unlock()
	go func() {
		defer close(p.done)
		if err := p.Wait(); !p.told.Load() || p.ProcessState.ExitCode() > 0 {
			t.tb.Errorf("the agent of %s ended by itself, or badly: %v: see its log", a.member.name, err)
		}
	}()
}

func (a *agent) current() *agentProcess {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.process
}

func (a *agent) end(s syscall.Signal) {
	p := a.current()
	p.told.Store(true)
	_ = p.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(10*time.Second + 10*a.member.team.base.Lease):
		a.member.team.tb.Errorf("the agent of %s does not end on %v", a.member.name, s)
		_ = p.Process.Kill()
		<-p.done
	}
}

// agentFaults are the faults of processes as they happen to agents, by the name of the fault.
var agentFaults = map[string]fault{
	"SIGKILL":       {name: "SIGKILL of the agent", begin: func(m *member) { m.agent.end(syscall.SIGKILL) }, end: func(m *member) { m.agent.start() }},
	"SIGTERM":       {name: "SIGTERM of the agent", begin: func(m *member) { m.agent.end(syscall.SIGTERM) }, end: func(m *member) { m.agent.start() }},
	"SIGSTOP":       {name: "SIGSTOP of the agent", begin: stopAgent, end: continueAgent},
	"short SIGSTOP": {name: "short SIGSTOP of the agent", begin: stopAgent, end: continueAgent},
}

func stopAgent(m *member) { _ = m.agent.current().Process.Signal(syscall.SIGSTOP) }

func continueAgent(m *member) { _ = m.agent.current().Process.Signal(syscall.SIGCONT) }

// program is the code in the process of a program that gets its lock from an agent.
type program struct {
	*worker

	mu   sync.Mutex
	hold string     // the id of the current one
	term *agentTerm // the latest
}

// agentTerm is a term as a program knows it from its agent's lines.
type agentTerm struct {
	hold   string
	fenced fenced
	until  atomic.Int64  // by the time of day, in milliseconds; 0 if the program has lost the lock or releases it
	worked chan struct{} // closed when the work has returned
}

func (t *agentTerm) may() bool { return time.Now().UnixMilli() < t.until.Load() }

func (w *worker) runProgram(orders <-chan string) error {
	p := &program{worker: w}
	w.stepsDown = p.askStepDown
	go w.obey(orders)
	done := make(chan error, 1)
	go func() {
		for w.ctx.Err() == nil {
			p.compete()
			pause(w.ctx, 20*time.Millisecond)
		}
		done <- nil
	}()
	w.watch(done, &interval{lock: w.Lock, has: p.has})
	return nil
}

func (p *program) has() (bool, spindle.Token) {
	p.mu.Lock()
	t := p.term
	p.mu.Unlock()
	if t == nil || !t.may() {
		return false, 0
	}
	return true, t.fenced.token
}

// agentLine is a line of an agent.
type agentLine struct {
	Event, Hold string
	Token       spindle.Token
	Until       struct {
		Unix int64 `json:"unix_ms"`
	}
	Fence []agentFence
}

type agentFence struct {
	GoogleSQL, PostgreSQL, P1 string
	Rows                      int64
}

// compete asks the agent for the lock, and works during the term, until the response ends.
func (p *program) compete() {
	q := url.Values{"name": {p.Lock}, "lease": {p.Lease.String()}, "label": {p.Who}}
	if p.Handover {
		q.Set("handover", "true")
		q.Set("priority", fmt.Sprint(p.Priority))
	}
	conn, answer := p.ask("/v1/elections?" + q.Encode())
	if answer == nil {
		return
	}
	defer conn.Close()
	var term *agentTerm
	defer context.AfterFunc(p.ctx, func() { p.leave(conn) })()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		var l agentLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch l.Event {
		case "hello":
			p.mu.Lock()
			p.hold = l.Hold
			p.mu.Unlock()
		case "held":
			term = p.begin(l)
		case "until":
			if before := term.until.Load(); before != 0 { // it is not releasing the lock
				term.until.CompareAndSwap(before, l.Until.Unix)
			}
		case "stop":
			go p.release(term)
		case "lost":
			if term != nil {
				term.until.Store(0)
			}
		}
	}
}

// ask returns a nil answer if the agent does not answer with status 200.
func (p *program) ask(path string) (net.Conn, *http.Response) {
	conn, err := net.Dial("unix", p.Socket)
	if err != nil {
		return nil, nil
	}
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", path)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		_ = conn.Close()
		return nil, nil
	}
	return conn, answer
}

// begin begins a term, and its work.
func (p *program) begin(l agentLine) *agentTerm {
	t := &agentTerm{fenced: p.by(l), worked: make(chan struct{})}
	t.until.Store(l.Until.Unix)
	p.mu.Lock()
	t.hold = p.hold
	p.term = t
	p.mu.Unlock()
	p.say(record{Kind: kindEvent, Token: l.Token, Note: spindle.Elected.String()})
	go func() {
		defer close(t.worked)
		for t.may() && p.ctx.Err() == nil {
			p.write(t.fenced)
			pause(p.ctx, 10*time.Millisecond+rand.N(30*time.Millisecond))
		}
		if p.ctx.Err() == nil { // once more, deliberately too late
			time.AfterFunc(rand.N(p.Lease), func() { p.write(t.fenced) })
			go p.release(t) // if the program was stopped, its agent may still keep the lock for it
		}
	}()
	return t
}

// release releases the lock when the work has returned.
func (p *program) release(t *agentTerm) {
	if t == nil {
		return
	}
	t.until.Store(0)
	<-t.worked
	if conn, answer := p.ask("/v1/holds/" + t.hold + "/release"); answer != nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = conn.Close()
	}
}

// leave ends the response when this process has to exit.
func (p *program) leave(conn net.Conn) {
	p.mu.Lock()
	t := p.term
	p.mu.Unlock()
	_ = conn.SetReadDeadline(time.Now().Add(2 * p.Lease)) // the agent may be stopped
	if t == nil || !t.may() {
		_ = conn.Close()
		return
	}
	p.release(t)
}

// askStepDown asks the agent for the end of the term.
func (p *program) askStepDown() {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if conn, err := net.Dial("unix", p.Socket); err == nil {
		_ = conn.SetDeadline(time.Now().Add(p.Lease))
		_, _ = fmt.Fprintf(conn, "POST /v1/holds/%s/stepdown HTTP/1.0\r\n\r\n", hold)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && answer.StatusCode == http.StatusAccepted {
			p.say(record{Kind: kindSteppedDown})
		}
		_ = conn.Close()
	}
}

// by returns the fence in a line: the mutation for writes without a read, and the SQL statement for the others.
func (p *program) by(l agentLine) fenced {
	f := l.Fence[0]
	statement := spanner.Statement{SQL: f.GoogleSQL, Params: map[string]any{"p1": f.P1}}
	if p.Postgres {
		statement.SQL = f.PostgreSQL
	}
	return fenced{p.Lock, 0, l.Token,
		func(ctx context.Context, ms []*spanner.Mutation) (time.Time, error) {
			at, err := p.db.Apply(ctx, append(ms, spanner.Update(p.Table, []string{"name"}, []any{f.P1})))
			if spanner.ErrCode(err) == codes.NotFound {
				err = spindle.ErrFenced
			}
			return at, err
		},
		func(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
			return p.db.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				n, err := txn.Update(ctx, statement)
				switch {
				case err != nil:
					return err
				case n != f.Rows:
					return spindle.ErrFenced
				}
				return fn(ctx, txn)
			})
		}}
}
