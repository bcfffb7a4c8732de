package mutex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/bench/internal/etcd"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/lock"
)

func TestMain(m *testing.M) {
	subprocess.Main(runWork)
	os.Exit(m.Run())
}

// work describes what a process does for each order that it receives.
type work struct {
	Kind       string // loop, step, try, or etcd for the server
	Server     server
	Goroutines int           // loop
	Hold, For  time.Duration // loop
	Slots      int           // try
	Dir        string        // etcd
}

// A report is a line that a process prints. All times are in nanoseconds and come from the machine's clock.
type report struct {
	Endpoint         string `json:",omitempty"` // etcd
	Asked, Got, Gave int64  // loop, step. Got is 0 if the process did not get the lock.
	OK               bool   // try
	Error            string `json:",omitempty"`
	End              bool   // loop
}

func runWork(args []string, orders <-chan string) error {
	var w work
	if err := json.Unmarshal([]byte(args[0]), &w); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	if w.Kind == "etcd" {
		return etcd.Serve(w.Dir, func(endpoint string) { say(report{Endpoint: endpoint}) })
	}
	c, err := w.Server.connect()
	if err != nil {
		return err
	}
	switch w.Kind {
	case "loop":
		return w.loop(c, orders, say)
	case "step":
		return w.step(c, orders, say)
	case "try":
		return w.try(c, orders, say)
	}
	return fmt.Errorf("unknown work %q", w.Kind)
}

// loop locks and unlocks the same mutex repeatedly in each of its goroutines.
func (w work) loop(c *client, orders <-chan string, say func(report)) error {
	lockers := make([]locker, w.Goroutines)
	for i := range lockers {
		var err error
		if lockers[i], err = c.mutex("turns"); err != nil {
			return err
		}
	}
	say(report{})
	<-orders
	ctx, cancel := context.WithTimeout(context.Background(), w.For)
	defer cancel()
	var all sync.WaitGroup
	failures := make([]error, len(lockers))
	for i, l := range lockers {
		all.Go(func() {
			for ctx.Err() == nil && failures[i] == nil {
				failures[i] = w.turn(ctx, l, say)
			}
		})
	}
	all.Wait()
	say(report{End: true})
	return errors.Join(failures...)
}

func (w work) turn(ctx context.Context, l locker, say func(report)) error {
	r := report{Asked: time.Now().UnixNano()}
	defer func() { say(r) }()
	if err := l.Lock(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.Got = time.Now().UnixNano()
	time.Sleep(w.Hold)
	r.Gave = time.Now().UnixNano()
	return l.Unlock(context.Background())
}

// step locks the mutex named by an order, and unlocks it when the next order arrives.
func (w work) step(c *client, orders <-chan string, say func(report)) error {
	say(report{})
	for name := range orders {
		m, err := c.mutex(name)
		if err != nil {
			return err
		}
		if err := m.Lock(context.Background()); err != nil {
			return err
		}
		say(report{Got: time.Now().UnixNano()})
		<-orders
		gave := time.Now().UnixNano()
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
		say(report{Gave: gave})
	}
	return nil
}

// try tries to acquire one permit in each of its goroutines, from the semaphore named by an order. It keeps the
// permits.
func (w work) try(c *client, orders <-chan string, say func(report)) error {
	say(report{})
	for name := range orders {
		for range w.Goroutines {
			s := lock.NewSemaphore(c.spanner, w.Server.Table, name, w.Slots, quiet)
			go func() {
				_, ok, err := s.TryAcquire(context.Background())
				r := report{OK: ok}
				if err != nil {
					r.Error = err.Error()
				}
				say(r)
			}()
		}
	}
	return nil
}

// A worker is a process that runs the given work.
type worker struct {
	*subprocess.Child
	reports chan report
}

func startWorker(b *testing.B, w work) *worker {
	b.Helper()
	arg, err := json.Marshal(w)
	require.NoError(b, err)
	p := &worker{reports: make(chan report, 1000)}
	p.Child, err = subprocess.Command{
		Args: []string{string(arg)}, Stderr: os.Stderr,
		Line: func(line string) {
			var r report
			if json.Unmarshal([]byte(line), &r) == nil {
				p.reports <- r
			}
		},
		Ended: func(error) { close(p.reports) },
	}.Start()
	require.NoError(b, err)
	b.Cleanup(func() {
		go func() {
			for range p.reports { // unread reports must not keep the process from exiting
			}
		}()
		p.Kill()
	})
	return p
}

// startWorkers starts processes, and returns when all of them are connected.
func startWorkers(b *testing.B, all ...work) []*worker {
	b.Helper()
	workers := make([]*worker, len(all))
	for i, w := range all {
		workers[i] = startWorker(b, w)
	}
	for _, p := range workers {
		p.hear(b)
	}
	return workers
}

// tell sends an order to each worker.
func tell(b *testing.B, workers []*worker, order string) {
	b.Helper()
	for _, p := range workers {
		require.NoError(b, p.Send(order))
	}
}

// hear waits for the next report.
func (p *worker) hear(b *testing.B) report {
	b.Helper()
	select {
	case r, ok := <-p.reports:
		require.True(b, ok, "a process has exited")
		return r
	case <-time.After(time.Minute):
		require.FailNow(b, "a process did not report in time")
		return report{}
	}
}
