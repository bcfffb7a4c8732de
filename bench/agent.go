package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

// startAgents starts an emulator, and an agent for each process, as if each process were on a machine of its own.
func startAgents(g *ground, n int) ([]place, error) {
	places, err := startSpindle(g, n)
	if err != nil {
		return nil, err
	}
	for i := range places {
		if places[i].Socket, err = g.agent(places[i]); err != nil {
			return nil, fmt.Errorf("spindle agent: %w", err)
		}
	}
	return places, nil
}

func (g *ground) agent(at place) (socket string, err error) {
	dir, err := g.newDir()
	if err != nil {
		return "", err
	}
	socket = filepath.Join(dir, "s")
	p, err := g.run(task{
		Kind: "exec",
		Argv: []string{g.tools.spindle, "agent", "--listen", "unix:" + socket},
		Env:  map[string]string{"SPINDLE_DB": at.Database, "SPANNER_EMULATOR_HOST": at.Addr},
	})
	if err != nil {
		return "", err
	}
	return socket, until(p, time.Minute, func() error {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// An agentHold is a request for a lock. The response lasts for as long as the program holds the lock.
type agentHold struct {
	agent *http.Client
	id    string
	body  io.ReadCloser
	over  chan struct{} // closed when the response has ended
}

func agentAt(socket string) *http.Client {
	var d net.Dialer
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	}}}
}

// request asks for a lock, and returns when this program holds it. If ctx ends earlier, the program stops waiting. After
// that, ctx has no effect.
func request(ctx context.Context, agent *http.Client, kind, name string) (*agentHold, error) {
	query := url.Values{"name": {name}, "lease": {lease.String()}}
	held, cancel := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, cancel)
	req, err := http.NewRequestWithContext(held, http.MethodPost, "http://agent/v1/"+kind+"?"+query.Encode(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := agent.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	h := &agentHold{agent: agent, body: resp.Body, over: make(chan struct{})}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var line struct{ Event, Hold string }
		_ = json.Unmarshal(lines.Bytes(), &line) // some lines are empty
		switch line.Event {
		case "hello":
			h.id = line.Hold
		case "held":
			keep()
			go func() {
				defer cancel()
				defer close(h.over)
				for lines.Scan() { // the agent tells the time until which this program may act
				}
			}()
			return h, nil
		}
	}
	cancel()
	return nil, errors.Join(ctx.Err(), fmt.Errorf("the agent refused the lock with status %d", resp.StatusCode))
}

func (h *agentHold) release() error {
	resp, err := h.agent.Post("http://agent/v1/holds/"+h.id+"/release", "", nil)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answered a release with status %d", resp.StatusCode)
	}
	return errors.Join(resp.Body.Close(), h.body.Close())
}

func askAgent(ctx context.Context, p place, name string, say say) error {
	h, err := request(ctx, agentAt(p.Socket), "elections", name)
	if err != nil {
		return err
	}
	say(held, name)
	select {
	case <-ctx.Done():
	case <-h.over:
		return errors.New("the lock was lost")
	}
	say(left, name)
	return h.release()
}

// agentMutex is a mutex that an agent holds for this process.
type agentMutex struct {
	agent *http.Client
	name  string
	hold  *agentHold
}

func agentMutexes(p place) (func(name string) (locker, error), error) {
	agent := agentAt(p.Socket)
	return func(name string) (locker, error) { return &agentMutex{agent: agent, name: name}, nil }, nil
}

func (m *agentMutex) Lock(ctx context.Context) (err error) {
	m.hold, err = request(ctx, m.agent, "locks", m.name)
	return err
}

func (m *agentMutex) Unlock(context.Context) error { return m.hold.release() }
