package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// If this process is killed or stopped after it has started a program, and before it has told the watchdog which, nobody
// ends that program. So what is started is not the program: it is this executable again, in the process that will be the
// program's. It waits until the watchdog knows that process, and only then becomes the program.

// Behind is the first argument of a process that waits at a gate. What follows is for Pass.
const Behind = "__behind-gate"

// The files of a process behind a gate.
const (
	gateFd   = 3
	reportFd = 4
)

// A gate is this side of the one that a program waits behind.
type gate struct {
	path   string
	let    *os.File   // a byte opens it
	report *os.File   // why the program can't be run, or nothing
	theirs []*os.File // the other side
}

// putBehind makes the command wait behind a gate when it is started.
func putBehind(c *exec.Cmd) (*gate, error) {
	self, err := itself()
	if err != nil {
		return nil, err
	}
	waits, let, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	report, out, err := os.Pipe()
	if err != nil {
		_, _ = waits.Close(), let.Close()
		return nil, err
	}
	g := &gate{c.Path, let, report, []*os.File{waits, out}}
	c.Args = append([]string{os.Args[0], Behind, c.Path}, c.Args...)
	c.Path, c.ExtraFiles = self, g.theirs
	return g, nil
}

// started leaves the other side to the command.
func (g *gate) started() {
	for _, f := range g.theirs {
		_ = f.Close()
	}
}

// open lets the program begin, unless its process has been ended. An error says why it can't.
func (g *gate) open() error {
	_, _ = g.let.Write([]byte{'\n'})
	var number int
	if n, _ := fmt.Fscan(g.report, &number); n == 1 {
		return &fs.PathError{Op: "exec", Path: g.path, Err: syscall.Errno(number)}
	}
	return nil
}

func (g *gate) close() {
	_ = g.let.Close()
	_ = g.report.Close()
}

// Pass is the work of a process behind a gate. It returns only if the program does not begin: the one that started it
// has ended, or the program can't be run, which is reported.
func Pass(path string, args []string) {
	if n, _ := os.NewFile(gateFd, "gate").Read(make([]byte, 1)); n == 0 {
		return
	}
	closeOnExec(gateFd, reportFd)
	var number syscall.Errno
	if errors.As(become(path, args), &number) {
		fmt.Fprintln(os.NewFile(reportFd, "report"), int(number))
	}
}
