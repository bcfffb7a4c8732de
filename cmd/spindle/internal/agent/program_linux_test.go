package agent

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

// runProgram is the main function of a process that asks for a hold and prints its lines. It obeys orders from its
// standard input.
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
		closeAll()
	case "execve":
		_ = syscall.Exec("/bin/cat", []string{"cat"}, nil)
	case "daemonize": // the parent exits; its child has inherited everything but the socket
		offspring(nil)
		os.Exit(0)
	case "leave a child with the socket":
		f, err := conn.File()
		if err != nil {
			panic(err)
		}
		offspring(f)
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

// closeAll closes all files and sockets of this process. It does so without their owners, as a program does that was
// written in C.
func closeAll() {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, f := range open {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			panic(err)
		}
		target, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if fd > 2 && !strings.HasPrefix(target, "anon_inode:") { // without its epoll, Go's runtime ends the process
			_ = unix.Close(fd)
		}
	}
}

// offspring starts a process that ends when the standard input of this process is closed.
func offspring(socket *os.File) {
	c := exec.Command("/bin/cat")
	c.Stdin = os.Stdin
	if socket != nil {
		c.ExtraFiles = []*os.File{socket}
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
}

// started is a process that executes runProgram, as seen by the test.
type started struct {
	*bed
	command *exec.Cmd
	orders  io.WriteCloser
	lines   *bufio.Scanner
}

func (b *bed) start(path string, in ...string) *started {
	p := &started{bed: b, command: exec.Command(os.Args[0], "-test.run=^$")}
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

// reads returns the first line with the given event.
func (p *started) reads(event string) (l said) {
	for p.lines.Scan() {
		if l = (said{}); len(p.lines.Bytes()) > 0 {
			require.NoError(p, json.Unmarshal(p.lines.Bytes(), &l), p.lines.Text())
		}
		if l.Event == event {
			return l
		}
	}
	require.Fail(p, "the program said nothing of "+event)
	return l
}

func (p *started) order(text string) {
	_, err := io.WriteString(p.orders, text+"\n")
	require.NoError(p, err)
}

func (p *started) signal(s os.Signal) { require.NoError(p, p.command.Process.Signal(s)) }

// boottime returns the time by CLOCK_BOOTTIME, which does not change when the time of day is set.
func boottime(t *testing.T) int64 {
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return ts.Nano() / 1e6
}

// When a program is killed, its lock is released as soon as its process has ended. That takes a small part of the
// lease, even if the program has threads, a lot of memory, or a successor that is waiting.
func TestTheLockOfAKilledProgramIsReleasedImmediately(t *testing.T) {
	b := onSocket(t)
	p := b.start("/v1/locks?name=a&lease=1h")
	first := p.reads("held")
	p.order("threads and memory")
	p.reads("ready")
	next := b.start("/v1/locks?name=a&lease=10s") // polls every 0.5 s
	next.reads("waiting")
	p.signal(syscall.SIGKILL)
	second := next.reads("held")
	assert.Greater(t, second.Token, first.Token)
	assert.Less(t, time.Now().UnixMilli(), first.Until.Unix)
}

// If a program gives up its connection in any way but continues to run, no other program gets its lock until the last
// time that it was promised.
func TestAProgramThatContinuesKeepsOthersFromItsLock(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"close", "close all descriptors", "execve", "daemonize"} {
		t.Run(order, func(t *testing.T) {
			b := onSocket(t)
			p := b.start("/v1/locks?name=a&lease=700ms")
			last := p.reads("held")
			next := b.start("/v1/locks?name=a&lease=700ms")
			next.reads("waiting")
			p.order(order)
			held := next.reads("held")
			if order == "daemonize" {
				return // documented: the process that connected has ended, and its connection is closed
			}
			assert.GreaterOrEqual(t, boottime(t), last.Until.Boottime)
			assert.Greater(t, held.Token, last.Token)
		})
	}
}

// After a program has ended, a child that has its connection may still act. The lock is therefore not released, but
// expires.
func TestAChildWithTheConnectionKeepsOthersFromTheLock(t *testing.T) {
	b := onSocket(t)
	p := b.start("/v1/locks?name=a&lease=700ms")
	last := p.reads("held")
	next := b.start("/v1/locks?name=a&lease=700ms")
	next.reads("waiting")
	p.order("leave a child with the socket")
	next.reads("held")
	assert.GreaterOrEqual(t, boottime(t), last.Until.Boottime)
}

// A program that is stopped for longer than its lease keeps its lock, because the agent sends the heartbeats.
func TestAStoppedProgramKeepsItsLock(t *testing.T) {
	t.Parallel()
	b := onSocket(t)
	p := b.start("/v1/locks?name=a&lease=500ms")
	held := p.reads("held")
	p.signal(syscall.SIGSTOP)
	row := b.store.Rows()["a"]
	require.Eventually(t, func() bool { return b.store.Rows()["a"].Heartbeat.Sub(row.Heartbeat) > time.Second }, patience, time.Millisecond, "heartbeats continue")
	p.signal(syscall.SIGCONT)
	assert.Greater(t, p.reads("until").Token+held.Token, int64(0))
	assert.NotEmpty(t, b.holder("a"))
}

// A stopped program that has asked for stall= loses its lock after it has not read for that long.
func TestAStoppedProgramLosesItsLockIfItAskedForIt(t *testing.T) {
	t.Parallel()
	b := onSocket(t)
	p := b.start("/v1/locks?name=a&lease=1s&stall=300ms")
	p.reads("held")
	p.signal(syscall.SIGSTOP)
	b.start("/v1/locks?name=a&lease=400ms").reads("held")
	p.signal(syscall.SIGCONT)
	assert.Equal(t, "stalled", p.reads("lost").Reason)
}

// When the first process of a pid namespace ends, all other processes of the namespace end too. The lock is released
// once that process has ended, even if the agent can't see into the namespace.
func TestAProgramInAnotherPidNamespaceIsSeenToEnd(t *testing.T) {
	b := onSocket(t)
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

// A program of another user can neither see nor end holds that are not its own.
func TestAnotherUserHasNoPartInAHold(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a program of another user")
	}
	b := onSocket(t)
	require.NoError(t, os.Chmod(b.socket, 0o666))
	for dir := b.socket; dir != "/"; {
		dir = dir[:max(strings.LastIndex(dir, "/"), 1)]
		if dir == "/tmp" {
			break
		}
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	held := b.asks("", "POST /v1/locks?name=a&lease=1s").reads("held")
	curl := func(method, path string) string {
		c := exec.Command("curl", "-s", "--unix-socket", b.socket, "-X", method, "http://agent"+path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Contains(t, curl("POST", "/v1/holds/"+held.Hold+"/release"), "no-such-hold")
	assert.Contains(t, curl("GET", "/v1/holds/"+held.Hold), "no-such-hold")
	assert.JSONEq(t, `{"holds":[]}`, curl("GET", "/v1/holds"))
	assert.JSONEq(t, `{"held":0}`, curl("POST", "/v1/stepdown"))
	assert.Contains(t, curl("POST", "/v1/stepdown?drain"), "not-yours")
	metrics := curl("GET", "/metrics")
	assert.Contains(t, metrics, `spindle_agent_holds{state="held"} 1`)
	assert.NotContains(t, metrics, `spindle_lock=`, "the names of locks")
	assert.NotEmpty(t, b.holder("a"))
}
