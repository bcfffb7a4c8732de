package child

import (
	"os/exec"
	"sync"
)

// family are the processes that this one has started by this package, and waits for. Any other child of its own, in a group
// of its own, is an orphan that it was given: as PID 1, or as the subreaper of what a program has left behind.
var family = struct {
	sync.Mutex // held while a process is started: until then it can't be told from an orphan
	pids       map[int]bool
	elders     map[int]string // when those were born that were there before the program: see elders
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
