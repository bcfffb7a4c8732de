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

// If this process were killed or stopped between starting a program and telling the watchdog about it, no process would
// end the program. This process therefore starts its own executable instead. The new process waits behind a gate until
// the watchdog knows its process id, and then becomes the program. If the watchdog's deadline passes first, because
// this process was stopped, the new process exits without becoming the program.

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

// amongInherited assigns descriptor numbers to files. It skips the numbers of files that this process has inherited,
// because the program inherits those files as well. It returns both kinds of files in descriptor order, starting at 3.
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

// open lets the process behind the gate become the program, and waits for the result until the deadline at the latest.
// It returns an error if the program can't be run.
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

// Pass waits behind a gate, and then replaces this process with the program. It returns only if the parent has exited,
// the deadline has passed, or the program can't be run. In the last case, it reports the error to the parent.
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
