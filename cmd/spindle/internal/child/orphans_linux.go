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

// adopt makes this process the parent of all processes that its programs leave behind, even outside their groups, and waits
// for them until it is called off.
func adopt() (callOff func()) {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return func() {}
	}
	adopts.Store(true)
	elders()
	stop := reap()
	return func() {
		adopts.Store(false)
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // otherwise nobody would wait for later orphans
		stop()
	}
}

var adopts atomic.Bool

// elders spares the children that this process has before a program begins: a script that becomes this process leaves it the
// script's children, and PID 1 adopts other orphans.
func elders() {
	before := map[int]string{}
	for pid := range orphans() {
		before[pid] = born(pid)
	}
	family.Lock()
	defer family.Unlock()
	family.elders = before
}

// ReapAsInit makes this process wait for orphans if it is PID 1, because no other process does. It kills none of them.
func ReapAsInit() {
	if os.Getpid() == 1 {
		_ = reap()
	}
}

// reap waits for orphans whenever a child has ended, until it is called off.
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

// endOrphans kills the orphans that this process has adopted, and returns when only those of other users are left. It
// returns how many it killed outside the program's group, which was killed before, and how many it may not kill.
func endOrphans(program int) (killed, left int) {
	if !adopts.Load() {
		return 0, 0
	}
	strays := map[int]bool{}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		ends := false
		left = 0
		for pid, group := range orphans() { // whose own children are given to this process then
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

// orphans returns the orphans that this process has adopted, and their groups. It reaps those that have ended. A child in
// this process's own group was started by a library, which waits for it.
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
				continue // otherwise it has other threads, which run on
			}
		}
		if family.elders[p.PID] != started(stat) && !isWatchdog(p) {
			alive[p.PID] = stat.PGRP
		}
	}
	return alive
}

// isWatchdog reports whether a process is the watchdog of another spindle that the program ran. Such a watchdog ends by itself
// once it has acted. To kill a guard's watchdog would leave the service active.
func isWatchdog(p procfs.Proc) bool {
	name, _ := p.Comm()
	return name == watchdogName
}

// KillMarked kills each process whose environment has all of these entries, and reports whether there were any. It is for
// processes that left a group before it was killed. It does not find a process with another environment, or of another
// user.
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
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // all of it: procfs reads a megabyte, and the marks are at its end
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

// rename gives this process a name, for ps and top.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
