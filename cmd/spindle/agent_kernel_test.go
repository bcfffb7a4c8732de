//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { programs["olderkernel"] = olderKernel }

// missing lists what a kernel of that version does not have of what tells an agent when a program ends.
var missing = map[string][]refusal{
	"6.5": {{call: unix.SYS_FSTATFS, errno: unix.ENOSYS}}, // no pidfs
	"5.3": {{call: unix.SYS_FSTATFS, errno: unix.ENOSYS}, noPeerPidfd},
	"5.2": {{call: unix.SYS_FSTATFS, errno: unix.ENOSYS}, noPeerPidfd, {call: unix.SYS_PIDFD_OPEN, errno: unix.ENOSYS}},
}

var noPeerPidfd = refusal{call: unix.SYS_GETSOCKOPT, level: unix.SOL_SOCKET, option: unix.SO_PEERPIDFD, errno: unix.ENOPROTOOPT}

// refusal makes a system call fail. If level is set, only calls with this level and option fail.
type refusal struct {
	call          uint32
	level, option uint32
	errno         syscall.Errno
}

// filter returns the refusal as a part of a seccomp filter. If the call is another one, the next part follows.
func (r refusal) filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equals := func(k uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: otherwise}
	}
	fails := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(r.errno)}
	const number, second, third = 0, 16 + 8, 16 + 16 // offsets in struct seccomp_data, on little-endian machines
	if r.level == 0 {
		return []unix.SockFilter{load(number), equals(r.call, 1), fails}
	}
	return []unix.SockFilter{load(number), equals(r.call, 5), load(second), equals(r.level, 3), load(third), equals(r.option, 1), fails}
}

// olderKernel is the main function of a process that becomes another one, for which some system calls fail as on an
// older kernel. Its arguments are the kernel's version and the command.
func olderKernel() {
	runtime.LockOSThread()
	var filter []unix.SockFilter
	for _, r := range missing[os.Args[1]] {
		filter = append(filter, r.filter()...)
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		panic(err)
	}
	path, err := exec.LookPath(os.Args[2])
	if err == nil {
		err = syscall.Exec(path, os.Args[2:], os.Environ())
	}
	panic(err)
}

// On a kernel that can tell when a process ends, the lock of a killed program is free at once. On an older one, the agent
// does not guess: the lock expires, unless the program asked for eof=release. On all of them, the agent knows whether
// two requests are of one program, and a program that dies before its connection is accepted keeps no lock.
func TestProgramsAreKilledOnOlderKernels(t *testing.T) {
	t.Parallel()
	e, db := newDatabase(t)
	for version, tells := range map[string]bool{"6.5": true, "5.3": true, "5.2": false} {
		t.Run("Linux "+version, func(t *testing.T) {
			t.Parallel()
			r := &recipes{site: &site{TB: t, dir: t.TempDir(), path: db, host: e.Addr(), kernel: version}}
			r.startAgent()
			t.Cleanup(func() { kill(r.agent) })
			r.eventually("the agent listens", func() bool { return r.ask(http.MethodGet, "/livez", &struct{}{}) == nil })
			r.asksTwice(version + "-twice")
			r.diesEarly(version + "-early")
			r.holdAndKill(version+"-eof", "&eof=release&lease=1m")
			r.eventually("the lock is free", func() bool { return len(r.holds(version+"-eof")) == 0 })
			if tells {
				r.holdAndKill(version, "&lease=1m")
				r.eventually("the lock is free", func() bool { return len(r.holds(version)) == 0 })
				return
			}
			r.holdAndKill(version, "&lease=10s")
			r.eventually("the agent sends no more heartbeats", func() bool { return r.state(version) == "orphaned" })
			r.eventually("the lock has expired", func() bool { return r.state(version) == "" })
			log, err := os.ReadFile(filepath.Join(r.dir, "log"))
			require.NoError(t, err)
			assert.Contains(t, string(log), "reason=the program closed the connection, but may still be running")
		})
	}
}

// state returns the state of the only hold of the lock, or "" if there is none.
func (r *recipes) state(name string) string {
	for _, h := range r.holds(name) {
		return h.State
	}
	return ""
}

// holdAndKill kills a program that holds the lock.
func (r *recipes) holdAndKill(name, parameters string) {
	w := &worker{log: filepath.Join(r.dir, "worker-"+name), quiet: true}
	r.request = "/v1/locks?name=" + name + parameters
	r.start(w)
	r.holder(name, 0)
	kill(w.command)
}

// diesEarly lets a program die before the agent accepts its connection. The lock is free in the end: at once, or when it
// has expired.
func (r *recipes) diesEarly(name string) {
	require.NoError(r, r.agent.Process.Signal(syscall.SIGSTOP))
	c := exec.Command("curl", "-s", "--max-time", "0.2", "--unix-socket", r.socket(), "-X", "POST", "http://agent/v1/locks?lease=2s&name="+name)
	require.Error(r, c.Run())
	require.NoError(r, r.agent.Process.Signal(syscall.SIGCONT))
	r.eventually("the lock is free", func() bool { return r.tries("/v1/locks?lease=2s&wait=0&name="+name) == "200 OK" })
}

// asksTwice asks for one lock on two connections of this process.
func (r *recipes) asksTwice(name string) {
	for _, answer := range []string{"HTTP/1.1 200", "HTTP/1.0 409"} {
		conn, err := net.Dial("unix", r.socket())
		require.NoError(r, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST /v1/locks?name=%s&wait=0 HTTP/1.0\r\n\r\n", name)
		require.NoError(r, err)
		got := make([]byte, len(answer))
		_, err = io.ReadFull(conn, got)
		require.NoError(r, err)
		assert.Equal(r, answer, string(got))
	}
}
