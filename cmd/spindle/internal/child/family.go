package child

import (
	"os/exec"
	"sync"
)

// family has the processes that this package has started, and waits for. Any other child in its own group is an orphan that
// this process has adopted: as PID 1, or as the subreaper of processes that a program left behind.
var family = struct {
	sync.Mutex // held while a process is started: until it is in the family, it looks like an orphan
	pids       map[int]bool
	elders     map[int]string // when each process was born that was there before the program: see elders
}{pids: map[int]bool{}}

func startOwn(cmd *exec.Cmd) error {
	family.Lock()
	defer family.Unlock()
	err := cmd.Start()
	if err == nil {
		family.pids[cmd.Process.Pid] = true
	}
	return err
}

func disown(pid int) {
	family.Lock()
	defer family.Unlock()
	delete(family.pids, pid)
}
