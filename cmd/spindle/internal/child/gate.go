package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// If this process is killed or stopped after it has started a program, and before it has told the watchdog which, nobody
// ends that program. So what is started is not the program: it is this executable again, in the process that will be the
// program's. It waits until the watchdog knows that process, and only then becomes the program. If this process was
// stopped meanwhile for so long that the watchdog would kill the program, it does not become the program any more.

// Behind is the first argument of a process that waits at a gate. What follows is for Pass.
const Behind = "__behind-gate"

// A gate is this side of the one that a program waits behind.
type gate struct {
	path   string
	let    *os.File   // a line opens it, which says until when
	report *os.File   // why the program can't be run, or nothing
	theirs []*os.File // the other side, among the files that a program inherits
}

// putBehind makes the command wait behind a gate when it is started.
func putBehind(c *exec.Cmd) (*gate, error) {
	self, err := itself()
	if err != nil {
		return nil, err
	}
	waits, let, report, out, err := pipes()
	if err != nil {
		return nil, err
	}
	theirs, numbers := amongInherited(waits, out)
	g := &gate{c.Path, let, report, theirs}
	c.Args = slices.Concat([]string{os.Args[0], Behind}, numbers, []string{strconv.FormatBool(programsGetTTOU), c.Path}, c.Args)
	c.Path, c.ExtraFiles = self, g.theirs
	return g, nil
}

// amongInherited gives files numbers that no file has which this process was started with, since those are the
// program's too. It returns all of them, from number 3 on.
func amongInherited(files ...*os.File) (all []*os.File, numbers []string) {
	for fd := 3; len(files) > 0; fd++ {
		f := inheritedFile(fd)
		if f == nil {
			f, files = files[0], files[1:]
			numbers = append(numbers, strconv.Itoa(fd))
		}
		all = append(all, f)
	}
	return all, numbers
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
func Pass(args []string) {
	if len(args) < 5 {
		return
	}
	gateFd, _ := strconv.Atoi(args[0]) // putBehind wrote them
	reportFd, _ := strconv.Atoi(args[1])
	var until int64 // by the wall clock: the line may be read late
	if n, _ := fmt.Fscanln(os.NewFile(uintptr(gateFd), "gate"), &until); n == 0 || time.Now().UnixNano() >= until {
		return
	}
	closeOnExec(gateFd, reportFd)
	if args[2] == "true" {
		unignoreTTOU()
	}
	var number syscall.Errno
	if errors.As(become(args[3], args[4:]), &number) {
		fmt.Fprintln(os.NewFile(uintptr(reportFd), "report"), int(number))
	}
}
