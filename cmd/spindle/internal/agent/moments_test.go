package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
	"github.com/spindle-lock/spindle/lock"
)

// caller is a program that holds one lock by an agent. What it does under the lock, it does until the agent's last until.
type caller struct {
	*moments.World
	*bed
	stream       *wire
	before, next *lock.Mutex
	ended        chan struct{} // closed when the response has ended

	mu    sync.Mutex
	hold  string
	acts  bool
	since elect.Instant // when it learned how much time is left
	left  time.Duration
}

// A hold waits for its lock behind another process, its program works and releases it, and then another process wants the
// lock. Whatever happens at whatever moment: no other process holds the lock while the program may act, the agent keeps nothing
// of the hold, and the other process gets the lock.
func TestAHoldAtEachMoment(t *testing.T) {
	of := func(f func(*caller)) func(*moments.World) {
		return func(w *moments.World) { f(w.Values.(*caller)) }
	}
	moments.AtEachMoment(t, moments.Machine{
		Live: liveHold,
		Events: moments.Common(map[string]func(*moments.World){
			"the holder unlocks":       of(func(c *caller) { _ = c.before.Unlock(context.Background()) }),
			"its program is killed":    of((*caller).killed),
			"its program has ended":    of(func(c *caller) { c.stream.exits() }),
			"its stream is closed":     of(func(c *caller) { _ = c.stream.Close() }),
			"its program is done":      of((*caller).released),
			"it is asked to step down": of(func(c *caller) { c.post("/v1/holds/" + c.id() + "/stepdown") }),
			"all are asked to stop":    of(func(c *caller) { c.post("/v1/stepdown") }),
			"an operator releases it":  moments.Operator("m"),
		}),
		After: func(w *moments.World) {
			c := w.Values.(*caller)
			ctx, cancel := context.WithTimeout(context.Background(), 4*moments.Lease)
			defer cancel()
			if err := c.next.Lock(ctx); err != nil {
				w.Errorf("another process: %v", err)
				return
			}
			_ = c.next.Unlock(ctx)
			w.Until("nothing of the hold is left", 4*moments.Lease, func() bool { return len(kept(c.agent, c.peers)) == 0 })
		},
	})
}

func liveHold(w *moments.World) {
	c := &caller{World: w, ended: make(chan struct{}), before: lock.New(nil, "locktable", "m", w.Beside("before")), next: lock.New(nil, "locktable", "m", w.Beside("next"))}
	w.Values = c
	c.bed = newBed(w, func(c *Config) { c.Locks = table.Table{Store: w.Table()} })
	c.agent.clock, c.agent.promises.clock = w.Clock, w.Clock
	c.serve()
	defer c.server.Close()
	c.stream = c.dial("program").(*wire)
	defer w.Apart(c.mayAct, holdsMutex(c.before), holdsMutex(c.next))()
	defer w.Renewed(c.mayAct, []string{"claim", "outcome", "confirm", "heartbeat"})()
	_ = c.before.Lock(context.Background())
	w.Others.Go(func() {
		time.Sleep(moments.Lease)
		_ = c.before.Unlock(context.Background())
	})
	w.Others.Go(func() {
		time.Sleep(moments.Lease + moments.Lease/2)
		ctx, cancel := context.WithTimeout(context.Background(), 5*moments.Lease)
		defer cancel()
		if c.next.Lock(ctx) == nil {
			time.Sleep(moments.Lease / 4)
			_ = c.next.Unlock(context.Background())
		}
	})
	stops := context.AfterFunc(w.Ctx, func() { c.agent.Drain(context.Background(), "agent-stops") })
	defer stops()
	go c.reads()
	select {
	case <-c.ended:
	case <-time.After(10 * moments.Lease):
		w.Errorf("the response does not end")
	}
	w.Until("the program's time is over", 2*moments.Lease, func() bool { return !c.mayAct() })
	c.killed()
	time.Sleep(moments.Lease) // what the agent might still do
}

func holdsMutex(m *lock.Mutex) func() bool {
	return func() bool { return m.Token() != 0 && m.Left() > 0 }
}

// mayAct reports whether the program acts: it got its lock, it has neither released it nor read that the lock is lost, and
// the time that it was promised has not passed by its machine's clock.
func (c *caller) mayAct() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acts && c.Clock.Now().Since(c.since) < c.left
}

func (c *caller) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold
}

// post sends a request, as another process.
func (c *caller) post(path string) {
	conn := c.dial("another")
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", path)
	_, _ = io.ReadAll(conn)
	_ = conn.Close()
}

// reads does what the lines say.
func (c *caller) reads() {
	defer close(c.ended)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.acts && !happened(c.stream.closed) {
			c.Errorf("the response ended, and the program was not told that its lock is lost")
		}
	}()
	_, _ = fmt.Fprint(c.stream, "POST /v1/locks?name=m&lease=10s&wait=40s HTTP/1.0\r\n\r\n")
	var all response
	for lines := bufio.NewScanner(c.stream); lines.Scan(); {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // a header
		}
		if wrong := all.hears(l.Event); wrong != "" {
			c.Errorf("%s", wrong)
		}
		c.mu.Lock()
		switch l.Event {
		case "hello":
			c.hold = l.Hold
		case "held", "until":
			c.since, c.left = c.Clock.Now(), time.Duration(l.Left)*time.Millisecond
			if l.Event == "held" {
				c.acts = true
				time.AfterFunc(moments.Lease, c.released)
			}
		case "stop":
			go c.released()
		case "lost":
			c.acts = false
		}
		c.mu.Unlock()
	}
}

// released ends the program's work, and then releases the lock.
func (c *caller) released() {
	c.mu.Lock()
	c.acts = false
	c.mu.Unlock()
	c.post("/v1/holds/" + c.id() + "/release")
}

func (c *caller) killed() {
	c.mu.Lock()
	c.acts = false
	c.mu.Unlock()
	_ = c.stream.Close()
	c.stream.exits()
}
