package child

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strconv"

	"github.com/prometheus/procfs"
)

// zombie is the state of a process that has exited, but has not been reaped by its parent yet. See proc(5).
const zombie = "Z"

// ours reports whether /proc shows process ids as in this process's PID namespace. See pid_namespaces(7).
func ours() bool {
	self, err := procfs.Self()
	return err == nil && self.PID == os.Getpid()
}

// processes iterates over the processes that /proc shows.
func processes() iter.Seq2[procfs.Proc, procfs.ProcStat] {
	return func(yield func(procfs.Proc, procfs.ProcStat) bool) {
		all, _ := procfs.AllProcs()
		for _, p := range all {
			if stat, err := p.Stat(); err == nil && !yield(p, stat) {
				return
			}
		}
	}
}

// born returns the start time of a process, which distinguishes the process from a later one with the same id. It
// returns "" if there is no such process, or if the start time can't be read.
func born(pid int) string {
	if !ours() {
		return ""
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return ""
	}
	stat, err := p.Stat()
	if err != nil {
		return ""
	}
	return started(stat)
}

func started(stat procfs.ProcStat) string { return strconv.FormatUint(stat.Starttime, 10) }

// onlyZombies reports whether every process of the group has exited. It counts zombies as exited, because some init
// processes take seconds to reap them. It returns false if /proc does not show all processes.
func onlyZombies(pgid int) bool {
	if born(1) == "" {
		return false // because of hidepid= (see proc(5)) or another PID namespace
	}
	all, err := procfs.AllProcs()
	if err != nil || len(all) == 0 {
		return false
	}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case err != nil && ended(p.PID), err == nil && stat.PGRP != pgid:
			continue
		case err != nil, stat.State != zombie:
			return false
		}
		// The first thread can exit before the other threads.
		threads, err := procfs.AllThreads(p.PID)
		if !errors.Is(err, fs.ErrNotExist) && len(threads) != 1 {
			return false
		}
	}
	return true
}

// ended reports whether a process no longer exists, for example because it exited while its state was being read.
func ended(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return errors.Is(err, fs.ErrNotExist)
}
