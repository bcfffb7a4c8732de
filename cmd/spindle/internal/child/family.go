package child

import (
	"os/exec"
	"sync"
)

// family contains the processes that this package has started and waits for. Any other child process that has its own
// group is an orphan that this process has adopted, either as PID 1 or as the subreaper for processes that a program
// left behind.
var family = struct {
	sync.Mutex // held while a process is started, because the process looks like an orphan until it is in pids
	pids       map[int]bool
	elders     map[int]string // the start times of processes older than the program, by process id; see the function elders
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
