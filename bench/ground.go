package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// A ground is where one measurement takes place. It ends all processes of the measurement.
type ground struct {
	dir       string
	made      int // directories
	stderr    io.Writer
	apiserver string                                   // the path of a kube-apiserver
	via       func(n int, addr string) (string, error) // returns the address at which process n reaches the server at addr

	mu      sync.Mutex
	closers []func()
}

func newGround(apiserver string, stderr io.Writer) (*ground, error) {
	dir, err := os.MkdirTemp("", "bench")
	g := &ground{dir: dir, apiserver: apiserver, stderr: stderr, via: func(_ int, addr string) (string, error) { return addr, nil }}
	g.onClose(func() { _ = os.RemoveAll(dir) })
	return g, err
}

// onClose makes close call f. It can be called concurrently.
func (g *ground) onClose(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closers = append(g.closers, f)
}

// close ends all processes, the last one first.
func (g *ground) close() {
	for i := len(g.closers) - 1; i >= 0; i-- {
		g.closers[i]()
	}
}

// newDir returns a new directory.
func (g *ground) newDir() (string, error) {
	g.made++
	dir := filepath.Join(g.dir, strconv.Itoa(g.made))
	return dir, os.Mkdir(dir, 0o700)
}

// run starts a process, which ends with the measurement at the latest.
func (g *ground) run(t task) (*process, error) {
	p, err := t.start(g.stderr)
	if err != nil {
		return nil, err
	}
	g.onClose(func() {
		go func() {
			for range p.reports { // unread reports must not keep the process from ending
			}
		}()
		p.Kill()
	})
	return p, nil
}

// until calls probe until it succeeds. It fails if the server ends or the limit is reached first.
func until(server *process, limit time.Duration, probe func() error) error {
	late := time.After(limit)
	for {
		err := probe()
		if err == nil {
			return nil
		}
		select {
		case <-server.Done():
			return errors.Join(errors.New("the server has ended"), server.failure)
		case <-late:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
