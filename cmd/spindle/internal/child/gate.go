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

// This process may be killed or stopped after it has started a program but before it has told the watchdog about the
// program. In that case, the watchdog could not end the program. To prevent this, the program starts behind a gate:
// this process starts a copy of its own executable. The copy waits until the watchdog has been told the copy's process
// id, and then calls exec to become the program. If the watchdog's deadline has passed by then, the copy exits instead.

// Behind is the first argument of a process that waits behind a gate. The remaining arguments are for Pass.
const Behind = "__behind-gate"

// A gate is this process's side of the gate that a program waits behind.
type gate struct {
	path   string
	let    *os.File   // a line with the deadline opens the gate
	report *os.File   // receives the reason if the program can't be run
	theirs []*os.File // the other side's files, and the inherited files between them
}

// putBehind changes the command so that it waits behind a gate when it is started.
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

// amongInherited returns the files that a new process gets, in the order of their descriptors, which start at 3. Files
// that this process inherited keep their descriptors, so that the program inherits them too. The given files get unused
// descriptors, which amongInherited also returns.
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

// started closes this process's copies of the other side's files.
func (g *gate) started() {
	for _, f := range g.theirs {
		_ = f.Close()
	}
}

// open opens the gate, so that the waiting process becomes the program. It returns an error if the program can't be
// run. If the waiting process has not answered by the deadline, open returns nil.
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

// Pass waits behind a gate and then replaces this process with the program. It returns only on failure: if the parent
// exits first, if the gate opens after the deadline, or if the program can't be run. In the last case, Pass sends the
// error to the parent.
func Pass(args []string) {
	if len(args) < 5 {
		return
	}
	gateFd, _ := strconv.Atoi(args[0]) // putBehind wrote args, so they can be parsed
	reportFd, _ := strconv.Atoi(args[1])
	var until int64 // a wall-clock time, because the line may be read late
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
