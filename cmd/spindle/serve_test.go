//go:build unix && (browser || prometheus)

package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// A process is this command, or another, that a test started.
type process struct {
	*exec.Cmd
	t     *testing.T
	lines chan string // of its standard output; closed at its end
}

// start starts a program, which is gone at the end of the test. What it says is in the test's log if it fails.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(name, args...), t: t, lines: make(chan string, 10_000)}
	p.Env = append(os.Environ(), env...)
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = said
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		_ = p.Process.Signal(syscall.SIGCONT)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
			<-done
		}
		if text, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("%v: %s", p.Args, text)
		}
		_ = said.Close()
	})
	return p
}

// says waits for a line of the standard output, and returns what the expression's group has in it.
func (p *process) says(expression string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	re := regexp.MustCompile(expression)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%v ended without saying %s", p.Args, expression)
			}
			if found := re.FindStringSubmatch(line); found != nil {
				return found[len(found)-1]
			}
		case <-ctx.Done():
			p.t.Fatalf("%v does not say %s", p.Args, expression)
		}
	}
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	return on.Addr().String()
}
