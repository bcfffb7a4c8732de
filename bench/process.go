package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

// A task is what a process does.
type task struct {
	Kind     string // compete, turns, etcd, or exec
	System   string
	Place    place
	Name     string        // the lock's name
	Dir      string        // etcd: where its data is
	Argv     []string      // exec: the program and its arguments
	Turns    int           // turns: the maximum number, or 0 for no limit
	Hold     time.Duration // turns: how long a process holds the lock each time
	Duration time.Duration // turns: how long the processes compete, at most
	Lease    time.Duration
}

// A report is a line that a process prints. Its times come from the machine's clock, in nanoseconds.
type report struct {
	Kind string // ready, held, left, done
	Part string `json:",omitempty"`
	At   int64
	Addr string  `json:",omitempty"` // etcd's endpoint
	Took []stint `json:",omitempty"` // turns
}

const (
	ready = "ready"
	held  = "held" // the process has begun to hold a part of the lock
	left  = "left" // the process has stopped its work, and is about to give up a part of the lock
	done  = "done"
)

// say reports that something has just happened.
type say func(kind, part string)

// during reports that the process holds a part until ctx ends.
func (say say) during(ctx context.Context, part string) {
	say(held, part)
	<-ctx.Done()
	say(left, part)
}

// A process runs a task.
type process struct {
	*subprocess.Child
	reports chan report // closed when the process has ended
	failure error       // why it ended, if it failed; valid once reports is closed
}

// start starts a process. The process's messages go to stderr, unless stderr is nil.
func (t task) start(stderr io.Writer) (*process, error) {
	t.Lease = lease
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	p := &process{reports: make(chan report, 10_000)}
	p.Child, err = subprocess.Command{
		Args: []string{string(arg)}, Stderr: stderr,
		Line: func(line string) {
			var r report
			if json.Unmarshal([]byte(line), &r) == nil {
				p.reports <- r
			}
		},
		Ended: func(err error) { p.failure = err; close(p.reports) },
	}.Start()
	return p, err
}

// await returns the next report.
func (p *process) await(limit time.Duration) (report, error) {
	select {
	case r, ok := <-p.reports:
		if !ok {
			return r, fmt.Errorf("a process has ended: %w", errors.Join(p.failure, errors.New("it sent no report")))
		}
		return r, nil
	case <-time.After(limit):
		return report{}, fmt.Errorf("a process has reported nothing for %v", limit)
	}
}

// runTask runs in the process that start started.
func runTask(args []string, orders <-chan string) error {
	var t task
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	lease = t.Lease
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	switch t.Kind {
	case "exec":
		return syscall.Exec(t.Argv[0], t.Argv, os.Environ())
	case "etcd":
		return serveEtcd(t.Dir, func(endpoint string) { tell(report{Kind: ready, Addr: endpoint}) })
	case "compete":
		return t.compete(tell)
	case "turns":
		return t.turns(tell, orders)
	}
	return fmt.Errorf("unknown task %q", t.Kind)
}

// compete competes for a lock until the process receives SIGTERM.
func (t task) compete(tell func(report)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tell(report{Kind: ready})
	err := systemNamed(t.System).compete(ctx, t.Place, t.Name, func(kind, part string) {
		tell(report{Kind: kind, Part: part, At: time.Now().UnixNano()})
	})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, errors.New("the candidate ended before it was told to"))
}
