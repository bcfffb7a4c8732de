// Package agentcmd has the command agent.
package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/agent"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/probe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/systemd"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

const agentHelp = `Agent holds locks for the programs of this machine, or of one pod, in any
language. A program asks for a lock over a Unix socket, in plain HTTP. The lock
is held for as long as the response lasts:

  curl -N --unix-socket /run/spindle/agent.sock -X POST \
    'http://agent/v1/locks?name=nightly'

When the program dies, however it dies, the agent releases its locks at once:
the next program gets them without waiting for the lease to expire. Lines of
JSON tell the program that it holds the lock, until when it may act, the fence
for its writes, and when it must stop. docs/agent.md has the protocol, with
clients for Python and Node.

A program must be able to write to the socket: --mode says who can. Requests
through a proxy are refused, and there is no TCP: a lock belongs to the process
that is connected. --allow-name limits what programs can lock.

At SIGTERM or SIGINT, the agent asks all programs to release their locks, and
waits for them, at most until the locks have expired. It never releases a lock
whose program may still act. A second signal ends it at once.
`

// DefaultSocket is where an agent listens, and where its clients look for it, unless SPINDLE_AGENT says otherwise.
const DefaultSocket = "/run/spindle/agent.sock"

// serving is one run of agent.
type serving struct {
	*connect.Database
	listen   string
	mode     string
	probes   string
	allow    []string
	maxHolds int
}

// New returns the command agent.
func New(o *connect.Database) *cobra.Command {
	s := &serving{Database: o}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Hold locks for programs in any language, over a Unix socket",
		Long:  agentHelp + "\n" + flags.CommonCodes,
		Example: `  spindle agent
  spindle agent --listen unix:/tmp/agent.sock --allow-name billing/
  spindle agent stepdown`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.listen, "listen", "unix:"+DefaultSocket, "the Unix `socket` to listen on")
	c.Flags().StringVar(&s.mode, "mode", "0660", "the socket's `permissions`")
	c.Flags().StringSliceVar(&s.allow, "allow-name", nil, "let programs lock only names that begin with one of these `prefixes`")
	c.Flags().IntVar(&s.maxHolds, "max-holds", 5000, "how many programs may hold locks, or wait for them, at a time")
	c.Flags().StringVar(&s.probes, "probe-listen", "", "the `address`, host:port, at which to answer /livez, /v1/leading, /v1/elections and /metrics (default: none)")
	c.AddCommand(newStepDown())
	return c
}

func (s *serving) run(ctx context.Context) error {
	path, mode, err := s.check()
	if err != nil {
		return err
	}
	db, err := s.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := s.look(ctx, db); err != nil {
		return err
	}
	on, err := listenOn(path, mode)
	if err != nil {
		return err
	}
	defer on.Close()
	ctx, stop := exit.UntilEnded(ctx)
	defer stop()
	terminal.Stderr.Time()
	exit.OutliveReaders()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	a := agent.New(agent.Config{Locks: db.Locks(), TableName: s.Table, Allow: s.allow, MaxHolds: s.maxHolds, Host: host, Log: logger()})
	server := a.Serve(on)
	defer server.Close()
	if s.probes != "" {
		end, err := s.serveProbes(a)
		if err != nil {
			return err
		}
		defer end()
	}
	asks := make(chan struct{})
	unit := systemd.Begin(asks)
	defer unit.End()
	go func() {
		for range asks { // each hold has its own loop
		}
	}()
	unit.Ready()
	terminal.Complain("programs get locks of %s in %s at %s", s.Table, s.Path, path)
	<-ctx.Done()
	unit.Stopping()
	terminal.Complain("asked to end: waiting for programs to release their locks")
	a.Drain(context.Background(), "agent-stops")
	return nil
}

// check looks for mistakes on the command line.
func (s *serving) check() (path string, mode fs.FileMode, err error) {
	path, ok := strings.CutPrefix(s.listen, "unix:")
	if !ok || path == "" {
		return "", 0, exit.Misuse("--listen %q: want unix:/path/of/the.sock. There is no TCP: a lock belongs to the process that is connected", s.listen)
	}
	n, err := strconv.ParseUint(s.mode, 8, 32)
	if err != nil || n > 0o777 {
		return "", 0, exit.Misuse("--mode %q: want the permissions as an octal number, such as 0660", s.mode)
	}
	if s.maxHolds < 1 {
		return "", 0, exit.Misuse("--max-holds %d: must be at least 1", s.maxHolds)
	}
	for _, prefix := range s.allow {
		if err := table.CheckName(prefix); err != nil {
			return "", 0, exit.Misuse("--allow-name: %w", err)
		}
	}
	return path, fs.FileMode(n), nil
}

// look reads the table once: a mistake in the flags is found before a program asks.
func (s *serving) look(ctx context.Context, db *connect.Connection) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	_, err := db.Locks().Observe(ctx, "spindle/agent")
	if err != nil && !connect.Passing(err) {
		return s.Explain(err)
	}
	if err != nil {
		terminal.Complain("the database can't be reached, and programs wait until it can: %v", s.Explain(err))
	}
	return nil
}

// listenOn listens on a socket that only users with these permissions can connect to. A socket that an agent left behind is
// replaced.
func listenOn(path string, mode fs.FileMode) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("--listen unix:%s: an agent listens there already", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	on, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("--listen unix:%s: %w: its directory, %s, must exist and be this user's", path, err, filepath.Dir(path))
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = on.Close()
		return nil, fmt.Errorf("--mode: %w", err)
	}
	return on, nil
}

func (s *serving) serveProbes(a *agent.Agent) (end func(), err error) {
	on, err := net.Listen("tcp", s.probes)
	if err != nil {
		return nil, fmt.Errorf("--probe-listen %s: %w: port 0 takes a free one", s.probes, err)
	}
	terminal.Complain("probes are answered at %s", terminal.URL(on.Addr()))
	return probe.Serve(on, a.ReadOnly()), nil
}
