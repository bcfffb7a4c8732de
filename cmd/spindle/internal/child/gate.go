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

// If this process were killed or stopped after it has started a program, and before the watchdog knows the program, nobody
// would end that program. So this process starts its own executable instead. The new process waits until the watchdog knows
// it, and only then becomes the program. If this process was stopped past the deadline at which the watchdog kills the
// program, the new process never becomes the program.

// Behind is the first argument of a process that waits behind a gate. The other arguments are for Pass.
const Behind = "__behind-gate"

// A gate is this process's side of the gate that a program waits behind.
type gate struct {
	path   string
	let    *os.File   // a line with the deadline opens it
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

// amongInherited gives files numbers that none of this process's inherited files has, because the program inherits those
// too. It returns all of them, from number 3 on.
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

// started closes this process's copies of the other side.
func (g *gate) started() {
	for _, f := range g.theirs {
		_ = f.Close()
	}
}

// open lets the program begin, unless its process has ended. It waits no longer than until. Its error says why the program
// can't begin.
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

// Pass waits behind a gate, and then becomes the program. It returns only if the program does not begin: the parent has
// ended, it is too late, or the program can't be run, which Pass reports.
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
