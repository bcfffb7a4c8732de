package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// If this process is killed or stopped after it has started a program, and before it has told the watchdog which, nobody
// ends that program. So what is started is not the program: it is this executable again, in the process that will be the
// program's. It waits until the watchdog knows that process, and only then becomes the program. If this process was
// stopped meanwhile for so long that the watchdog would kill the program, it does not become the program any more.

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
	let    *os.File   // a line opens it, which says until when
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

// open lets the program begin, unless its process has been ended. It does not wait for that for longer than until. An
// error says why the program can't begin.
func (g *gate) open(until time.Time) error {
	_, _ = fmt.Fprintln(g.let, until.UnixNano())
	_ = g.report.SetReadDeadline(until)
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
// has ended, it is too late, or the program can't be run, which is reported.
func Pass(path string, args []string) {
	var until int64 // by the wall clock: the line may be read late
	if n, _ := fmt.Fscanln(os.NewFile(gateFd, "gate"), &until); n == 0 || time.Now().UnixNano() >= until {
		return
	}
	closeOnExec(gateFd, reportFd)
	var number syscall.Errno
	if errors.As(become(path, args), &number) {
		fmt.Fprintln(os.NewFile(reportFd, "report"), int(number))
	}
}
