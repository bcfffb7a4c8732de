package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const stepDownHelp = `Stepdown asks the programs of an agent to release their locks, and returns once
they have done so. A program that holds a lock gets the line "stop", and should
release the lock once its current work is done. Until then, it keeps the lock.

With --drain, the agent also gives out no more locks until it is restarted. Use
this in the preStop hook of a pod:

  spindle agent stepdown --drain --within 25s

If root or the agent's own user runs stepdown, it asks the programs of all
users. Otherwise, it asks only the programs of the user who runs it.
`

type steppingDown struct {
	socket string
	drain  bool
	within time.Duration
}

func newStepDown() *cobra.Command {
	s := &steppingDown{}
	c := &cobra.Command{
		Use:   "stepdown",
		Short: "Ask an agent's programs to release their locks",
		Long:  stepDownHelp + "\n" + terminal.CommonCodes,
		Example: `  spindle agent stepdown
  spindle agent stepdown --drain --within 25s`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.socket, "agent", DefaultSocket, "the agent's `socket`")
	c.Flags().BoolVar(&s.drain, "drain", false, "give out no more locks until the agent is restarted")
	c.Flags().DurationVar(&s.within, "within", 30*time.Second, "how long to wait for the programs")
	return c
}

func (s *steppingDown) run(ctx context.Context) error {
	if s.within <= 0 {
		return terminal.Misuse("--within %v: must be positive", s.within)
	}
	ctx, stop := terminal.UntilInterrupted(ctx)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, s.within, fmt.Errorf("--within %v", s.within))
	defer cancel()
	path := "/v1/stepdown"
	if s.drain {
		path += "?drain"
	}
	var answer struct {
		Detail string `json:"detail"`
	}
	status, err := post(ctx, s.socket, path, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("some programs have not released their locks yet (%v); each lock stays held until its program releases it or ends", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("no valid answer from the agent at %s: %w; check that it is running, or give another socket with --agent", s.socket, err)
	case status != http.StatusOK:
		return fmt.Errorf("the agent at %s: %s", s.socket, answer.Detail)
	}
	terminal.Complain("all programs have released their locks")
	return nil
}

// post sends a request to the agent and decodes its answer.
func post(ctx context.Context, socket, path string, answer any) (status int, err error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, nil)
	if err != nil {
		return 0, err
	}
	said, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer said.Body.Close()
	return said.StatusCode, json.NewDecoder(said.Body).Decode(answer)
}
