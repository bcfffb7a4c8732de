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

// startAgent starts an agent for a process, as if each process were on a machine of its own.
func startAgent(g *ground, at place) (place, error) {
	dir, err := g.newDir()
	if err != nil {
		return at, err
	}
	at.Socket = filepath.Join(dir, "s")
	p, err := g.run(task{
		Kind: "exec",
		Argv: []string{g.tools.spindle, "agent", "--listen", "unix:" + at.Socket},
		Env:  map[string]string{"SPINDLE_DB": at.Database, "SPANNER_EMULATOR_HOST": at.Addr},
	})
	if err != nil {
		return at, fmt.Errorf("spindle agent: %w", err)
	}
	return at, until(p, time.Minute, func() error {
		c, err := net.Dial("unix", at.Socket)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// agentLock is a lock that an agent holds for this process, until the response to the request for it ends.
type agentLock struct {
	agent *http.Client
	url   string
	id    string
	body  io.ReadCloser
}

// agentLocks returns a function that creates locks of that kind.
func agentLocks(kind string) func(p place, name string) (locker, error) {
	return func(p place, name string) (locker, error) {
		var d net.Dialer
		agent := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", p.Socket)
		}}}
		query := url.Values{"name": {name}, "lease": {lease.String()}}
		return &agentLock{agent: agent, url: "http://agent/v1/" + kind + "?" + query.Encode()}, nil
	}
}

// Lock asks for the lock, and returns when this program holds it. If ctx ends earlier, the program stops waiting. After
// that, ctx has no effect.
func (l *agentLock) Lock(ctx context.Context) error {
	held, cancel := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, cancel)
	req, err := http.NewRequestWithContext(held, http.MethodPost, l.url, nil)
	if err != nil {
		cancel()
		return err
	}
	resp, err := l.agent.Do(req)
	if err != nil {
		cancel()
		return err
	}
	l.body = resp.Body
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var line struct{ Event, Hold string }
		_ = json.Unmarshal(lines.Bytes(), &line) // some lines are empty
		switch line.Event {
		case "hello":
			l.id = line.Hold
		case "held":
			keep()
			go func() {
				defer cancel()
				for lines.Scan() { // the agent tells the time until which this program may act
				}
			}()
			return nil
		}
	}
	cancel()
	return errors.Join(ctx.Err(), fmt.Errorf("the agent refused the lock with status %d", resp.StatusCode))
}

func (l *agentLock) Unlock(context.Context) error {
	resp, err := l.agent.Post("http://agent/v1/holds/"+l.id+"/release", "", nil)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answered a release with status %d", resp.StatusCode)
	}
	return errors.Join(resp.Body.Close(), l.body.Close())
}
