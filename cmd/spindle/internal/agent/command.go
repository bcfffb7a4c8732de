package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

const agentHelp = `Agent holds locks for programs on this machine or in this pod. The programs may
be written in any language. A program asks for a lock over a Unix socket, in
plain HTTP, and holds the lock for as long as the response lasts:

  curl -N --unix-socket /run/spindle/agent.sock -X POST \
    'http://agent/v1/locks?name=nightly'

If the program dies, the agent releases its locks at once, and the next program
does not have to wait for the lease to expire. This needs Linux 6.5, or 5.3 if
the program is in the agent's pid namespace. Elsewhere, the locks expire.

The response consists of lines of JSON, which tell the program when it holds the
lock, how long it may act, how to fence its writes, and when it must stop. The
protocol is described in docs/agent.md, and there are clients for Python and
Node.

Programs need permission to write to the socket; see --mode. Requests through a
proxy are refused, and the agent does not listen on TCP, because a lock belongs
to the process that connects. To limit which locks programs can take, use
--allow-name.

With --notify, agents and programs that use the library tell each other over UDP
when a lock is free. The lock then changes hands within a few milliseconds, and
waiting costs about two requests for each lease. Open the port to all processes
that use the same locks, and to no others.

On SIGTERM or SIGINT, the agent asks all programs to release their locks, and
waits until they have done so or the locks have expired. It never releases a
lock whose program may still act. A second signal ends the agent at once.
`

// DefaultSocket is where an agent listens, and where clients connect, unless they are given another socket.
const DefaultSocket = "/run/spindle/agent.sock"

// serving is one run of the agent command.
type serving struct {
	*database.Database
	listen   string
	mode     string
	probes   string
	allow    []string
	maxHolds int
	database.Notifications
}

// NewAgent returns the command agent.
func NewAgent(o *database.Database) *cobra.Command {
	s := &serving{Database: o}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Hold locks for programs in any language, over a Unix socket",
		Long:  agentHelp + "\n" + terminal.CommonCodes,
		Example: `  spindle agent
  spindle agent --listen unix:/tmp/agent.sock --allow-name billing/
  spindle agent stepdown`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.listen, "listen", "unix:"+DefaultSocket, "the Unix `socket` to listen on")
	c.Flags().StringVar(&s.mode, "mode", "0660", "the socket's `permissions`")
	c.Flags().StringSliceVar(&s.allow, "allow-name", nil, "allow only names that begin with these `prefixes`")
	c.Flags().IntVar(&s.maxHolds, "max-holds", 5000, "how many requests may hold locks or wait for locks at the same time; a single program may have at most half of them")
	c.Flags().StringVar(&s.probes, "probe-listen", "", "serve probes and metrics on this `address`, host:port; the paths are /livez, /v1/leading, /v1/elections and /metrics (default: none)")
	s.Notifications.Flags(c.Flags())
	c.AddCommand(newStepDown())
	return c
}

func (s *serving) run(ctx context.Context) error {
	path, mode, err := s.check()
	if err != nil {
		return err
	}
	notified, end, err := s.Notifications.Listen(s.Database)
	if err != nil {
		return err
	}
	defer end()
	db, err := s.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	beats, err := s.Open(append(spindle.ClientOptions(0), option.WithGRPCConnectionPool(1))...) // so that no heartbeat waits behind other requests
	if err != nil {
		return err
	}
	defer beats.Close()
	if err := s.look(ctx, db); err != nil {
		return err
	}
	on, err := listenOn(path, mode)
	if err != nil {
		return err
	}
	defer on.Close()
	return s.serve(ctx, on, Config{Locks: db.Locks(), Heartbeats: beats.Locks().Store, Notified: notified})
}

// serve serves programs until a signal arrives, and then waits until they have released or lost their locks.
func (s *serving) serve(ctx context.Context, on net.Listener, c Config) error {
	ctx, stop := terminal.UntilEnded(ctx)
	defer stop()
	terminal.Stderr.Time()
	terminal.OutliveReaders()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	c.TableName, c.Allow, c.MaxHolds, c.Host = s.Table, s.allow, s.maxHolds, host
	c.Log, c.Warnings = slog.New(journal{least: slog.LevelInfo}), slog.New(journal{least: slog.LevelWarn})
	a := New(c)
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
	unit := health.Notify(asks)
	defer unit.End()
	go func() {
		for range asks { // there is no main loop to check: each hold has its own
		}
	}()
	unit.Ready()
	terminal.Complain("serving locks of the table %s in %s on the socket %s", s.Table, s.Path, on.Addr())
	<-ctx.Done()
	unit.Stopping()
	terminal.Complain("shutting down: waiting for programs to release their locks")
	a.Drain(context.Background(), "agent-stops")
	last, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	_ = server.Shutdown(last) // which waits for the answers to the last releases
	return nil
}

// lastAnswers limits how long the answers to the last releases may take.
const lastAnswers = 3 * time.Second

// check validates the flags.
func (s *serving) check() (path string, mode fs.FileMode, err error) {
	path, ok := strings.CutPrefix(s.listen, "unix:")
	if !ok || path == "" {
		return "", 0, terminal.Misuse("--listen %q: want unix:/path/to/agent.sock; TCP is not supported, because a lock belongs to the process that connects", s.listen)
	}
	n, err := strconv.ParseUint(s.mode, 8, 32)
	if err != nil || n > 0o777 {
		return "", 0, terminal.Misuse("--mode %q: want the permissions as an octal number, such as 0660", s.mode)
	}
	if s.maxHolds < 1 {
		return "", 0, terminal.Misuse("--max-holds %d: must be at least 1", s.maxHolds)
	}
	for _, prefix := range s.allow {
		if err := table.CheckName(prefix); err != nil {
			return "", 0, terminal.Misuse("--allow-name: %w", err)
		}
	}
	return path, fs.FileMode(n), nil
}

// look reads the table once, to find mistakes in the flags before a program asks for a lock.
func (s *serving) look(ctx context.Context, db *database.Connection) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	_, err := db.Locks().Observe(ctx, "spindle/agent")
	if err != nil && !database.Passing(err) {
		return s.Explain(err)
	}
	if err != nil {
		terminal.Complain("programs can't get locks yet, because the database can't be reached: %v", s.Explain(err))
	}
	return nil
}

// listenOn listens on a socket that has the given permissions. It replaces a socket that an earlier agent left behind.
// If another agent is starting on the same path, listenOn fails: otherwise it could remove that agent's new socket.
func listenOn(path string, mode fs.FileMode) (net.Listener, error) {
	turn, err := child.NewLockFile(path + ".lock")
	switch {
	case errors.Is(err, child.ErrBusy):
		return nil, fmt.Errorf("--listen unix:%s: another agent is just starting there: start only one, or choose another path", path)
	case err != nil:
		return nil, fmt.Errorf("--listen unix:%s: %w: the directory %s must exist and be writable by this user", path, err, filepath.Dir(path))
	}
	defer turn.End()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("--listen unix:%s: %w", path, err)
	}
	on, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("--listen unix:%s: this path has %d bytes, which is too long for a Unix socket: Linux allows 107 bytes, macOS 103", path, len(path))
	}
	if err != nil {
		return nil, fmt.Errorf("--listen unix:%s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = on.Close()
		return nil, fmt.Errorf("--mode: %w", err)
	}
	return on, nil
}

// removeStale removes a socket on which no process listens. It checks the file's type first, because connect(2) returns
// the same error for a file that is not a socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is not a socket is in the way, and the agent does not remove it: remove the file, or choose another path")
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return errors.New("another agent is already listening there: stop it, or choose another path")
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("another process may be listening there: %w", err)
}

func (s *serving) serveProbes(a *Agent) (end func(), err error) {
	on, err := net.Listen("tcp", s.probes)
	if err != nil {
		return nil, fmt.Errorf("--probe-listen %s: %w: use port 0 to get a free port", s.probes, err)
	}
	terminal.Complain("answering probes at %s", terminal.URL(on.Addr()))
	return health.Serve(on, a.ReadOnly()), nil
}
