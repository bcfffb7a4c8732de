package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv("AGENT_SOCKET"); socket != "" {
		runProgram(socket, os.Getenv("AGENT_PATH"))
		return
	}
	os.Exit(m.Run())
}

// runProgram is a process that asks for a hold, prints its lines, and does what it is told on its standard input.
func runProgram(socket, path string) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\nHost: agent\r\n\r\n", path)
	go func() {
		reader := bufio.NewReader(conn)
		if r, err := http.ReadResponse(reader, nil); err == nil {
			_, _ = io.Copy(os.Stdout, r.Body)
		}
	}()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		obey(conn, orders.Text())
	}
}

func obey(conn *net.UnixConn, order string) {
	switch order {
	case "close":
		_ = conn.Close()
	case "close all descriptors":
		_ = unix.CloseRange(3, 1<<20, 0)
		select {}
	case "execve":
		_ = syscall.Exec("/bin/cat", []string{"cat"}, nil)
	case "daemonize": // the parent exits, and its child has everything but the socket
		child(nil)
		os.Exit(0)
	case "leave a child with the socket":
		f, err := conn.File()
		if err != nil {
			panic(err)
		}
		child(f)
		os.Exit(0)
	case "threads and memory":
		for range 50 {
			go func() { runtime.LockOSThread(); select {} }()
		}
		memory = make([]byte, 256<<20)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		fmt.Println(`{"event":"ready"}`)
	case "abort":
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
	}
}

var memory []byte

// child starts a process that ends with the standard input of this one.
func child(socket *os.File) {
	c := exec.Command("/bin/cat")
	c.Stdin = os.Stdin
	if socket != nil {
		c.ExtraFiles = []*os.File{socket}
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
}

// program is such a process, as the test sees it.
type program struct {
	*bed
	command *exec.Cmd
	orders  io.WriteCloser
	lines   *bufio.Scanner
}

func (b *bed) start(path string, in ...string) *program {
	p := &program{bed: b, command: exec.Command(os.Args[0], "-test.run=^$")}
	if len(in) > 0 {
		p.command = exec.Command(in[0], append(in[1:], os.Args[0], "-test.run=^$")...)
	}
	p.command.Env = append(os.Environ(), "AGENT_SOCKET="+b.socket, "AGENT_PATH="+path)
	p.command.Stderr = os.Stderr
	var err error
	p.orders, err = p.command.StdinPipe()
	require.NoError(b, err)
	out, err := p.command.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, p.command.Start())
	p.lines = bufio.NewScanner(out)
	p.lines.Buffer(nil, 1<<20)
	b.Cleanup(func() {
		_ = p.orders.Close()
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	})
	return p
}

// reads returns the first line with that event.
func (p *program) reads(event string) (l said) {
	for p.lines.Scan() {
		if len(p.lines.Bytes()) == 0 {
			continue
		}
		l = said{}
		require.NoError(p, json.Unmarshal(p.lines.Bytes(), &l), p.lines.Text())
		if l.Event == event {
			return l
		}
	}
	require.Fail(p, "the program said nothing of "+event)
	return l
}

func (p *program) order(text string) {
	_, err := io.WriteString(p.orders, text+"\n")
	require.NoError(p, err)
}

func (p *program) signal(s os.Signal) { require.NoError(p, p.command.Process.Signal(s)) }

// boottime is the present by the clock that until uses, whatever happens to the time of day.
func boottime(t *testing.T) int64 {
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return ts.Nano() / 1e6
}

// The lock of a program that is killed is released when its process has ended, in a small part of the lease, whatever the
// program has: threads, memory, a successor that waits.
func TestTheLockOfAKilledProgramIsReleasedImmediately(t *testing.T) {
	b := newBed(t)
	p := b.start("/v1/locks?name=a&lease=1h")
	first := p.reads("held")
	p.order("threads and memory")
	p.reads("ready")
	next := b.start("/v1/locks?name=a&lease=10s") // looks every 0.5 s
	next.reads("waiting")
	p.signal(syscall.SIGKILL)
	second := next.reads("held")
	assert.Greater(t, second.Token, first.Token)
	assert.Less(t, time.Now().UnixMilli(), first.Until["unix_ms"])
}

// A program that gives up its connection, in whichever way, and continues, keeps others from its lock until the last time
// that it was promised.
func TestAProgramThatContinuesKeepsOthersFromItsLock(t *testing.T) {
	for _, order := range []string{"close", "close all descriptors", "execve", "daemonize"} {
		t.Run(order, func(t *testing.T) {
			b := newBed(t)
			p := b.start("/v1/locks?name=a&lease=700ms")
			last := p.reads("held")
			next := b.start("/v1/locks?name=a&lease=700ms")
			next.reads("waiting")
			p.order(order)
			held := next.reads("held")
			if order == "daemonize" {
				return // the process that connected has ended, and so has its connection: documented
			}
			assert.GreaterOrEqual(t, boottime(t), last.Until["boottime_ms"])
			assert.Greater(t, held.Token, last.Token)
		})
	}
}

// While a child has the connection of a program that has ended, the child may act: the lock is not released, but expires.
func TestAChildWithTheConnectionKeepsOthersFromTheLock(t *testing.T) {
	b := newBed(t)
	p := b.start("/v1/locks?name=a&lease=700ms")
	last := p.reads("held")
	next := b.start("/v1/locks?name=a&lease=700ms")
	next.reads("waiting")
	p.order("leave a child with the socket")
	next.reads("held")
	assert.GreaterOrEqual(t, boottime(t), last.Until["boottime_ms"])
}

// A program that is stopped for longer than its lease keeps its lock, as the agent sends the heartbeats.
func TestAStoppedProgramKeepsItsLock(t *testing.T) {
	b := newBed(t)
	p := b.start("/v1/locks?name=a&lease=400ms")
	held := p.reads("held")
	p.signal(syscall.SIGSTOP)
	row := b.store.Rows()["a"]
	b.eventually(func() bool { return b.store.Rows()["a"].Heartbeat.Sub(row.Heartbeat) > 2*time.Second }, "heartbeats continue")
	p.signal(syscall.SIGCONT)
	assert.Greater(t, p.reads("until").Token+held.Token, int64(0))
	assert.NotEmpty(t, b.holder("a"))
}

// A program that is stopped, and has asked for it, loses its lock when it has not read for so long.
func TestAStoppedProgramLosesItsLockIfItAskedForIt(t *testing.T) {
	b := newBed(t)
	p := b.start("/v1/locks?name=a&lease=400ms&stall=800ms")
	p.reads("held")
	p.signal(syscall.SIGSTOP)
	b.start("/v1/locks?name=a&lease=400ms").reads("held")
	p.signal(syscall.SIGCONT)
	assert.Equal(t, "stalled", p.reads("lost").Reason)
}

// The first process of a pid namespace takes all others with it: its lock is released once it has ended, and the agent needs no
// view of that namespace.
func TestAProgramInAnotherPidNamespaceIsSeenToEnd(t *testing.T) {
	b := newBed(t)
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	p := b.start("/v1/locks?name=a&lease=1h&label=pod", unshare, "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
	p.reads("held")
	assert.Contains(t, b.holder("a"), "/pod")
	next := b.start("/v1/locks?name=a&lease=10s")
	next.reads("waiting")
	p.signal(syscall.SIGKILL)
	next.reads("held")
}

// What a program of another user may not do: see holds that are not its own, or end them.
func TestAnotherUserHasNoPartInAHold(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a program of another user")
	}
	b := newBed(t)
	require.NoError(t, os.Chmod(b.socket, 0o666))
	for dir := b.socket; dir != "/"; {
		dir = dir[:max(strings.LastIndex(dir, "/"), 1)]
		if dir == "/tmp" {
			break
		}
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	p := b.open("/v1/locks?name=a&lease=1s")
	hello := p.reads("hello")
	p.reads("held")
	curl := func(method, path string) string {
		c := exec.Command("curl", "-s", "--unix-socket", b.socket, "-X", method, "http://agent"+path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Contains(t, curl("POST", "/v1/holds/"+hello.Hold+"/release"), "no-such-hold")
	assert.Contains(t, curl("GET", "/v1/holds/"+hello.Hold), "no-such-hold")
	assert.JSONEq(t, `{"holds":[]}`, curl("GET", "/v1/holds"))
	assert.JSONEq(t, `{"held":0}`, curl("POST", "/v1/stepdown"))
	assert.Contains(t, curl("POST", "/v1/stepdown?drain"), "not-yours")
	assert.NotEmpty(t, b.holder("a"))
}

// An agent serves a thousand programs that wait, and each of them ends without a trace.
func TestAThousandConnectionsLeaveNothing(t *testing.T) {
	b := newBed(t)
	hold(t, b.agent.Locks, "taken")
	before := descriptors(t)
	var all []*stream
	for i := range 300 {
		s := b.open("/v1/semaphores?name=" + strconv.Itoa(i%10) + "&slots=1&lease=10s")
		all = append(all, s)
	}
	for _, s := range all {
		require.NoError(t, s.conn.Close())
	}
	b.eventually(func() bool {
		_, j := b.call("GET", "/v1/holds")
		return len(j["holds"].([]any)) == 0 && descriptors(t) <= before+20
	}, "nothing is left")
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}
