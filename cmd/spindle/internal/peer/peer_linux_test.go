package peer

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const patience = 5 * time.Minute

// watched is a peer, and what was seen of it.
type watched struct {
	*Peer
	closed, exited chan struct{}
}

// accept returns the peer of the next connection.
func accept(t *testing.T, listener *net.UnixListener) *watched {
	conn, err := listener.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p, err := Of(conn)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	w := &watched{p, make(chan struct{}), make(chan struct{})}
	require.NoError(t, p.Watch(func() { close(w.closed) }, func() { close(w.exited) }))
	return w
}

// client starts the test binary as a process that connects to the listener, does what its environment says, and waits.
func client(t *testing.T, listener *net.UnixListener, does string) (*exec.Cmd, io.WriteCloser, *watched) {
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), "PEER_SOCKET="+listener.Addr().String(), "PEER_DOES="+does)
	c.Stderr = os.Stderr
	orders, err := c.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c, orders, accept(t, listener)
}

func TestMain(m *testing.M) {
	if socket := os.Getenv("PEER_SOCKET"); socket != "" {
		connect(socket, os.Getenv("PEER_DOES"))
		return
	}
	os.Exit(m.Run())
}

func connect(socket, does string) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		panic(err)
	}
	orders := bufio.NewScanner(os.Stdin)
	orders.Scan()
	switch does {
	case "close":
		_ = conn.Close()
	case "half-close":
		_ = conn.CloseWrite()
	case "one byte more, and close":
		_, _ = conn.Write([]byte("x"))
		_ = conn.Close()
	case "execve": // execve closes the socket
		_ = syscall.Exec("/bin/cat", []string{"cat"}, nil)
	case "a child inherits the socket":
		f, err := conn.File()
		if err != nil {
			panic(err)
		}
		c := exec.Command("/bin/cat") // ends when the test closes its end of the pipe
		c.Stdin, c.ExtraFiles = os.Stdin, []*os.File{f}
		if err := c.Start(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	orders.Scan()
}

func listen(t *testing.T) *net.UnixListener {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func happens(t *testing.T, c <-chan struct{}, what string) {
	select {
	case <-c:
	case <-time.After(patience):
		require.Fail(t, what)
	}
}

func hasNotHappened(t *testing.T, c <-chan struct{}, what string) {
	select {
	case <-c:
		require.Fail(t, what)
	default:
	}
}

// When a process is killed, both the end of the process and the end of its stream are reported.
func TestAKilledProcessIsSeenToEnd(t *testing.T) {
	c, _, p := client(t, listen(t), "wait")
	assert.Equal(t, os.Getuid(), p.UID)
	assert.Equal(t, c.Process.Pid, p.PID)
	p.Describe()
	assert.Equal(t, filepath.Base(os.Args[0])[:min(15, len(filepath.Base(os.Args[0])))], p.Command)
	hasNotHappened(t, p.exited, "it has not ended")
	hasNotHappened(t, p.closed, "it has not closed the stream")
	require.NoError(t, c.Process.Kill())
	happens(t, p.exited, "the end of the process")
	happens(t, p.closed, "the end of the stream")
}

// A process that has ended before its connection is accepted is reported as ended.
func TestAProcessThatEndedBeforeItWasAcceptedIsSeenToHaveEnded(t *testing.T) {
	l := listen(t)
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), "PEER_SOCKET="+l.Addr().String())
	require.NoError(t, c.Run()) // it ends because its standard input is empty
	p := accept(t, l)
	happens(t, p.exited, "the end of the process")
	happens(t, p.closed, "the end of the stream")
}

// When a process closes its end of the stream in any way, it is not reported as ended.
func TestAClosedStreamIsNotTheEndOfTheProcess(t *testing.T) {
	for _, does := range []string{"close", "half-close", "one byte more, and close", "execve"} {
		t.Run(does, func(t *testing.T) {
			_, orders, p := client(t, listen(t), does)
			hasNotHappened(t, p.closed, "it has not closed the stream")
			assert.False(t, p.HasClosed())
			_, _ = io.WriteString(orders, "go\n")
			happens(t, p.closed, "the end of the stream")
			assert.True(t, p.HasClosed())
			hasNotHappened(t, p.exited, "it has not ended")
		})
	}
}

// A child that has inherited the socket keeps the stream open after its parent has ended.
func TestTheEndOfTheProcessIsNotTheEndOfTheStream(t *testing.T) {
	l := listen(t)
	_, orders, p := client(t, l, "a child inherits the socket")
	_, _ = io.WriteString(orders, "go\n")
	happens(t, p.exited, "the end of the process")
	hasNotHappened(t, p.closed, "the child still has the socket")
	require.NoError(t, orders.Close())
	happens(t, p.closed, "the end of the stream, with the child")
}

// All connections of a process have the same key. Different processes have different keys.
func TestAProcessHasOneKey(t *testing.T) {
	l := listen(t)
	_, _, a := client(t, l, "wait")
	_, _, b := client(t, l, "wait")
	assert.NotEqual(t, a.Key, b.Key)
	var own []string
	for range 2 {
		conn, err := net.Dial("unix", l.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		own = append(own, accept(t, l).Key)
	}
	assert.Equal(t, own[0], own[1])
}

// A kernel that gives each process its own inode tells processes apart even if they have no id here. With one key, all of them
// would count as one program, and one of them could use up the holds and connections of the others.
func TestAProcessWithoutAnIDHasTheKeyOfItsInode(t *testing.T) {
	_, _, w := client(t, listen(t), "wait")
	var inode string // or "" in an older kernel
	require.NoError(t, with(w.process, func(fd int) { inode = inodeOf(fd) }))
	assert.Equal(t, inode, (&Peer{process: w.process}).keyOf())
}

// The agent looks at a program before it answers a request, while other requests wait. It does not wait for a program that lives
// to end.
func TestALookAtALivingProcessTakesNoTime(t *testing.T) {
	_, _, p := client(t, listen(t), "wait")
	for what, look := range map[string]func() bool{"its stream": p.HasClosed, "its process": p.ended} {
		shortest := patience // of several, because the machine may be busy
		for range 20 {
			began := time.Now()
			assert.False(t, look(), what)
			shortest = min(shortest, time.Since(began))
		}
		assert.Less(t, shortest, 10*time.Millisecond, what)
	}
}

// Data written to a peer counts as unread until the peer reads it.
func TestWhatThePeerHasNotReadIsSeen(t *testing.T) {
	l := listen(t)
	conn, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	p := accept(t, l)
	assert.Zero(t, p.Unread())
	_, err = p.socket.WriteString("hello")
	require.NoError(t, err)
	assert.Positive(t, p.Unread())
	_, err = io.ReadFull(conn, make([]byte, 5))
	require.NoError(t, err)
	assert.Zero(t, p.Unread())
}

// A process that had ended when it was identified is reported as ended, also by a kernel that has no more to say of it than that.
func TestAProcessThatHadEndedIsReported(t *testing.T) {
	_, _, w := client(t, listen(t), "wait")
	p := &Peer{socket: w.socket, exited: true}
	exited := make(chan struct{})
	require.NoError(t, p.Watch(func() {}, func() { close(exited) }))
	happens(t, exited, "the end of the process")
}

// Nothing is said of a peer that is closed, although its descriptors may be those of the next one.
func TestAClosedPeerIsWatchedNoLonger(t *testing.T) {
	l := listen(t)
	first, _, gone := client(t, l, "wait")
	gone.Close()
	second, _, next := client(t, l, "wait")
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	require.NoError(t, second.Process.Kill())
	happens(t, next.exited, "the end of the process")
	happens(t, next.closed, "the end of the stream")
	hasNotHappened(t, gone.exited, "it is watched")
	hasNotHappened(t, gone.closed, "it is watched")
}

// Whatever the kernel answers about a process that has ended and been reaped, which depends on its version, the process counts as
// ended. One that runs does not, and an error that says nothing about the process is an error.
func TestAReapedProcessHasEndedInEveryKernel(t *testing.T) {
	reaped := exec.Command("true")
	require.NoError(t, reaped.Run())
	own := func() int {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		require.NoError(t, err)
		return fd
	}
	for _, c := range []struct {
		pidfd, pid int
		answer     error
		ended, ok  bool
	}{
		{-1, reaped.Process.Pid, unix.ESRCH, true, true},
		{-1, reaped.Process.Pid, unix.EINVAL, true, true},
		{-1, reaped.Process.Pid, unix.ENOPROTOOPT, true, true},
		{own(), os.Getpid(), nil, false, true},
		{-1, os.Getpid(), unix.ENOPROTOOPT, false, true},
		{-1, os.Getpid(), unix.EMFILE, false, false},
		{-1, os.Getpid(), unix.ENFILE, false, false},
		{-1, os.Getpid(), unix.ENOMEM, false, false},
	} {
		p := &Peer{Identity: Identity{PID: c.pid}}
		assert.Equal(t, c.ok, p.found(c.pidfd, c.answer) == nil, "%v", c.answer)
		assert.Equal(t, c.ended, p.ended(), "%v", c.answer)
		assert.Equal(t, c.ok && !c.ended, p.process != nil, "%v", c.answer)
	}
}

// A process in another pid namespace has no id here. An old kernel, which can't tell its end, must not let it count as ended: its lock
// would be released while it works.
func TestAProcessWithoutAnIDHasNotEnded(t *testing.T) {
	p := &Peer{}
	require.NoError(t, p.found(-1, unix.ENOPROTOOPT))
	assert.False(t, p.ended())
	assert.Nil(t, p.process)
	assert.Empty(t, p.keyOf())
}

// Without pidfs, the key of a process consists of its id and its start. A process that has ended has no key, and is not described,
// because another process may have its id by now.
func TestAnIDThatMayBeAnothersIsNotUsed(t *testing.T) {
	_, _, other := client(t, listen(t), "wait")
	key := func(pid int, exited bool) string {
		return (&Peer{Identity: Identity{PID: pid}, exited: exited}).keyOf()
	}
	own := key(os.Getpid(), false)
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	_, fields, _ := strings.Cut(string(stat), ") ") // from the third one on; see proc_pid_stat(5)
	assert.Equal(t, fmt.Sprintf("process %d of %s", os.Getpid(), strings.Fields(fields)[22-3]), own)
	assert.Equal(t, own, key(os.Getpid(), false))
	assert.NotEqual(t, own, key(other.PID, false))
	assert.Empty(t, key(os.Getpid(), true))
	for _, exited := range []bool{false, true} {
		p := &Peer{Identity: Identity{PID: os.Getpid()}, exited: exited}
		p.Describe()
		assert.Equal(t, exited, p.Command == "")
	}
}

// A process is described by what is known of it.
func TestAProcessIsDescribedByWhatIsKnown(t *testing.T) {
	for who, want := range map[Identity]string{
		{PID: 7, Command: "job"}:                    "job[7]",
		{PID: 7, Command: "job", Unit: "a.service"}: "job[7] in a.service",
		{Command: "job"}:                            "job",
		{Unit: "a.service"}:                         "in a.service",
		{PID: 7}:                                    "[7]",
		{UID: 1, Key: "process 1"}:                  "a process in another pid namespace",
	} {
		assert.Equal(t, want, who.String())
	}
}

// The first control group that has a service or a container names the process. On cgroup v1, a later group can be the service that runs
// all containers, which would give the processes of two containers the same name.
func TestAProcessIsNamedByItsOwnService(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for paths, want := range map[string]string{ // a control group a line
		"/system.slice/billing.service":                                                    "billing.service",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope":                  "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/job.service/worker.scope": "job.service",
		"/system.slice/docker-" + id + ".scope":                                            id[:12],
		"/":                                                                                "",
		"/\n/user.slice\n/system.slice/billing.service":                                    "billing.service",
		"/docker/" + id + "\n/system.slice/containerd.service":                             id[:12], // on cgroup v1, the last group can be the container runtime's
	} {
		var groups []procfs.Cgroup
		for path := range strings.SplitSeq(paths, "\n") {
			groups = append(groups, procfs.Cgroup{Path: path})
		}
		assert.Equal(t, want, unitOf(groups), paths)
	}
}
