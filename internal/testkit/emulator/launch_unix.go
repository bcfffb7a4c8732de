//go:build unix

package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watchdog is the shell script that runs an emulator and stops it when this process ends. Its arguments are the
// emulator's argv.
//
// File descriptor 3 is the read end of a pipe, and only this process has the write end. The script therefore reads EOF
// when this process ends, for whatever reason. Descriptor 4 is the write end of a second pipe, and only the script has
// it. This process therefore reads EOF when the script exits.
//
// STOP is replaced by the command that removes the emulator's container, or by a colon if there is no container. The
// script always kills the emulator as well. Otherwise, it could wait forever if removing the container failed.
const watchdog = `
stop() { STOP; kill -KILL $emulator; } 2>/dev/null
trap stop HUP INT TERM
"$@" </dev/null 3<&- 4>&- & emulator=$!
{ trap - HUP INT TERM; read -r _ <&3; stop; } 4>&- & guard=$!
wait $emulator
kill $guard 2>/dev/null
`

// pollPause is the pause between two checks of a starting emulator.
const pollPause = 10 * time.Millisecond

// announcement matches the line that the emulator logs when it begins to listen.
var announcement = regexp.MustCompile(`Server address: (\S+)\n`)

// A process is a running watchdog with its emulator.
type process struct {
	cmd   *exec.Cmd
	alive *os.File // the write end of the watchdog's descriptor 3
	ended *os.File // the read end of the watchdog's descriptor 4
	log   *os.File // the emulator's output

	once sync.Once
	err  error
}

// launch starts the command under a watchdog. It waits until the emulator answers, and returns the emulator's address.
func launch(ctx context.Context, c command) (*process, string, error) {
	p, err := spawn(c)
	if err != nil {
		return nil, "", fmt.Errorf("emulator: cannot start %s: %w", c.argv[0], err)
	}
	addr, err := p.ready(ctx, c)
	if err != nil {
		return nil, "", errors.Join(err, p.end())
	}
	return p, addr, nil
}

func spawn(c command) (*process, error) {
	log, err := unlinkedFile()
	if err != nil {
		return nil, err
	}
	aliveReader, alive, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	defer aliveReader.Close()
	ended, endedWriter, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close(), alive.Close())
	}
	defer endedWriter.Close()

	cmd := exec.Command("/bin/sh", append([]string{"-c", script(c), "spindle-emulator"}, c.argv...)...)
	cmd.Dir = "/"
	// The emulator must not use this process's own output, because "go test" waits until no process has it open.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{aliveReader, endedWriter}
	// The watchdog runs in its own session, so that signals from a terminal or to this process's group do not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	p := &process{cmd: cmd, alive: alive, ended: ended, log: log}
	if err := cmd.Start(); err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// script returns the watchdog's script for this command.
func script(c command) string {
	stop := ":"
	if c.stop != nil {
		stop = quote(c.stop)
	}
	return strings.Replace(watchdog, "STOP", stop, 1)
}

// quote renders argv as words of a shell command.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// unlinkedFile returns a temporary file that disappears when its last user closes it.
func unlinkedFile() (*os.File, error) {
	f, err := os.CreateTemp("", "spindle-emulator-*.log")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ready waits until the emulator answers and returns its address.
func (p *process) ready(ctx context.Context, c command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	announced, err := p.announced(ctx)
	if err != nil {
		return "", fmt.Errorf("emulator: %s %w", c.argv[0], err)
	}
	addr, err := c.address(ctx, announced)
	if err != nil {
		return "", err
	}
	if err := reach(ctx, addr); err != nil {
		return "", fmt.Errorf("emulator: %s was started and should be listening on %s, but it can't be reached: %w", c.argv[0], addr, err)
	}
	return addr, nil
}

// announced waits for the address that the emulator prints when it begins to listen.
func (p *process) announced(ctx context.Context) (string, error) {
	for {
		ended := p.endedWithin(pollPause)
		printed, err := p.printed()
		if err != nil {
			return "", err
		}
		if m := announcement.FindSubmatch(printed); m != nil {
			return string(m[1]), nil
		}
		if ended {
			return "", fmt.Errorf("ended before it was ready; it printed:\n%s", printed)
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("was not ready in time (%w); it printed:\n%s", ctx.Err(), printed)
		}
	}
}

// endedWithin reports whether the watchdog exits within the given time.
func (p *process) endedWithin(d time.Duration) bool {
	if err := p.ended.SetReadDeadline(time.Now().Add(d)); err != nil {
		return true
	}
	_, err := p.ended.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// printed returns the emulator's output so far, up to one mebibyte. It does not move the file's offset, because the
// emulator writes at that offset.
func (p *process) printed() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(p.log, 0, 1<<20))
}

// end stops the emulator and returns when it has exited.
func (p *process) end() error {
	p.once.Do(func() {
		p.alive.Close() // makes the watchdog stop the emulator and exit
		var exit *exec.ExitError
		if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
			p.err = fmt.Errorf("emulator: cannot wait for the emulator to exit: %w", err)
		}
		p.closeFiles()
	})
	return p.err
}

func (p *process) closeFiles() {
	p.alive.Close()
	p.ended.Close()
	p.log.Close()
}
