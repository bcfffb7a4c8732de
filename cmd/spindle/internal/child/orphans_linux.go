package child

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// adopt makes this process a subreaper. When a program exits, this process becomes the parent of all processes that the
// program leaves behind, including processes that have left the program's group. This process then reaps them when they
// exit. To end the adoption, call callOff.
func adopt() (callOff func()) {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return func() {}
	}
	adopts.Store(true)
	elders()
	stop := reap()
	return func() {
		adopts.Store(false)
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // otherwise no process would reap later orphans
		stop()
	}
}

var adopts atomic.Bool

// elders records which children this process has before it starts a program, so that endOrphans does not kill them.
// Such children exist if a shell script started background processes and then called exec to run this program. PID 1
// also has such children, because it adopts every orphan.
func elders() {
	family.Lock()
	family.elders = nil // orphans does not report those that are known
	family.Unlock()
	before := map[int]string{}
	orphans(func(pid, _ int) { before[pid] = born(pid) })
	family.Lock()
	defer family.Unlock()
	family.elders = before
}

// ReapAsInit makes this process reap orphans if it is PID 1, because no other process would reap them. ReapAsInit does
// not kill any process.
func ReapAsInit() {
	if os.Getpid() == 1 {
		_ = reap()
	}
}

// reap reaps orphans whenever a child exits, until callOff is called.
func reap() (callOff func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	over := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-ended:
				orphans(func(int, int) {})
			case <-over:
				return
			}
		}
	})
	return func() {
		signal.Stop(ended)
		close(over)
		done.Wait()
	}
}

// endOrphans kills the orphans that this process has adopted. It returns how many it killed, not counting those in
// the program's own group, which the caller has already killed. The second result is the number of orphans that this
// process can't kill, for example because they belong to other users.
func endOrphans(program int) (killed, left int) {
	if !adopts.Load() {
		return 0, 0
	}
	strays := map[int]bool{}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		ends := false
		left = 0
		orphans(func(pid, group int) { // this process then adopts their children
			if syscall.Kill(pid, syscall.SIGKILL) != nil {
				left++
				return
			}
			ends = true
			if group != program {
				strays[pid] = true
			}
		})
		if !ends {
			return len(strays), left
		}
		time.Sleep(pause)
	}
}

// orphans reaps the orphans that have exited. For every other orphan, except elders and watchdogs, it calls alive with
// the ids of the process and its group. Only this function reaps orphans, one call at a time, so these ids can't be
// reused during a call of alive. A child in this process's own group is not treated as an orphan, because a library may
// have started the child and be waiting for it.
func orphans(alive func(pid, group int)) {
	if !ours() {
		return
	}
	family.Lock()
	defer family.Unlock()
	self, own := os.Getpid(), thisGroup()
	for p, stat := range processes() {
		if stat.PPID != self || stat.PGRP == own || family.pids[p.PID] {
			continue
		}
		if stat.State == zombie {
			if reaped, _ := syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil); reaped == p.PID {
				continue // otherwise other threads of the process are still running
			}
		}
		if family.elders[p.PID] != started(stat) && !isWatchdog(p) {
			alive(p.PID, stat.PGRP)
		}
	}
}

// isWatchdog reports whether a process is the watchdog of another spindle command, which the program started. Such a
// watchdog exits when it is done, and must not be killed: without its watchdog, a guard could leave its service active.
func isWatchdog(p procfs.Proc) bool {
	name, _ := p.Comm()
	return name == watchdogName
}

// KillMarked kills every process that was started with all of the given entries in its environment, and reports whether
// it found any. It also kills processes that have left their group. It skips processes that have the variable except in
// their environment. It also skips processes whose environment it may not read, such as other users' processes.
func KillMarked(except string, entries ...string) (found bool) {
	if !ours() || len(entries) == 0 {
		return false
	}
	for p, stat := range processes() {
		if stat.State == zombie {
			continue
		}
		handle, err := os.FindProcess(p.PID) // before the marks are read, because the id could be reused before the kill
		if err == nil && marked(p.PID, except, entries) {
			found = true
			_ = handle.Kill()
		}
		_ = handle.Release()
	}
	return found
}

func marked(pid int, except string, entries []string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // procfs would read only the first megabyte, and the marks are at the end
	if err != nil {
		return false
	}
	has := strings.Split(string(environ), "\x00")
	for _, e := range entries {
		if !slices.Contains(has, e) {
			return false
		}
	}
	return !slices.ContainsFunc(has, func(e string) bool { return strings.HasPrefix(e, except+"=") })
}

// rename changes the name that ps and top show for this process.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
