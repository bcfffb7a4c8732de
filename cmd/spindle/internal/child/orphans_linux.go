package child

import (
	"errors"
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

// adopt makes this process the parent of all processes that its programs leave behind, even outside their groups. This
// process reaps them until callOff is called.
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

// elders records the children that this process has before a program begins, so that endOrphans spares them. For
// example, a script that becomes this process by exec leaves its children to it, and PID 1 adopts other orphans.
func elders() {
	before := map[int]string{}
	for pid := range orphans() {
		before[pid] = born(pid)
	}
	family.Lock()
	defer family.Unlock()
	family.elders = before
}

// ReapAsInit makes this process reap orphans if it is PID 1, because no other process does. It does not kill any of
// them.
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
				orphans()
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

// endOrphans kills the orphans that this process has adopted. It returns when only other users' orphans are left. It
// returns the number of processes that it killed outside the program's group, which is already dead, and the number of
// processes that it is not permitted to kill.
func endOrphans(program int) (killed, left int) {
	if !adopts.Load() {
		return 0, 0
	}
	strays := map[int]bool{}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		ends := false
		left = 0
		for pid, group := range orphans() { // this process then adopts their children
			if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
				left++
				continue
			}
			ends = true
			if group != program {
				strays[pid] = true
			}
		}
		if !ends {
			return len(strays), left
		}
		time.Sleep(pause)
	}
}

// orphans returns the orphans that this process has adopted, with their groups, and reaps orphans that have exited. A
// child in this process's own group is not an orphan: a library has started it, and waits for it.
func orphans() map[int]int {
	family.Lock()
	defer family.Unlock()
	alive, self, own := map[int]int{}, os.Getpid(), thisGroup()
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
			alive[p.PID] = stat.PGRP
		}
	}
	return alive
}

// isWatchdog reports whether a process is the watchdog of another spindle process that the program ran. Such a watchdog
// exits by itself once it has acted. Killing a guard's watchdog would leave the service active.
func isWatchdog(p procfs.Proc) bool {
	name, _ := p.Comm()
	return name == watchdogName
}

// KillMarked kills each process whose environment contains all of the given entries, and reports whether there were
// any. It is for processes that left a group before the group was killed. It does not find processes that changed their
// environment or belong to another user.
func KillMarked(entries ...string) (found bool) {
	if !ours() || len(entries) == 0 {
		return false
	}
	for p, stat := range processes() {
		if stat.State != zombie && p.PID != os.Getpid() && marked(p.PID, entries) {
			found = true
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	return found
}

func marked(pid int, entries []string) bool {
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
	return true
}

// rename changes the name under which ps and top show this process.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
