// Package servecmd has the command serve.
package servecmd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/serve"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const serveHelp = `Serve shows the lock table to people and to Prometheus, until it is interrupted:

  /         a page: each lock with its holder, its lease as a bar that runs out
            and is refilled, and a timeline of its terms of the last hour
  /metrics  for Prometheus: deploy/prometheus has alert rules, and
            deploy/grafana a dashboard for Grafana. The partitions of a group
            are counted by state; --partition-metrics adds each of them
  /healthz  200 if the table was read lately, else 503 and the reason

It reads the table once in each --every, however many pages are open, and writes
nothing. Reads have low priority, and take a tenth of the time at most: a large
table is read less often, and the page says how old its data is. It sees the
locks of programs in any language. Its timeline begins when it is started, since
the table has no history. A term that begins and ends between two looks is
missed.

With --expect, name the locks that should always be held. They are on the page,
and have metrics, whether they have a row or not, so that an alert can tell that
nobody ever took one. Released locks are not read: see --released. --exclude
leaves locks out: in a pattern, * stands for any text, ? for one character, as
in --exclude 'order-*,test/*'.

It has no log-in of its own: everybody who can reach it sees every lock, holder
and value. It listens on this machine only, unless --listen says otherwise. To
show the page to others, put a proxy with a log-in in front of it. It answers
requests for an address, for localhost, or for the machine's own name. It
refuses requests for other names, which pages of other sites could make: allow
your own with --host.
`

// serving is one run of serve.
type serving struct {
	*connect.Database
	listen string
	hosts  []string
	prefix string
	every  time.Duration

	expect   []string
	exclude  []string
	released bool

	partitionMetrics bool
}

// DefaultListen is where serve listens without --listen.
const DefaultListen = "127.0.0.1:8117"

// NewServe returns the command serve.
func NewServe(o *connect.Database) *cobra.Command {
	s := &serving{Database: o}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Show the locks on a page, and to Prometheus",
		Long:  serveHelp + flags.CommonCodes,
		Example: `  spindle serve
  spindle serve --expect nightly,billing/leader --exclude 'order-*'
  spindle serve --listen :8117    # for all who can reach this machine
  curl -s localhost:8117/metrics | grep spindle_lock_held`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.listen, "listen", DefaultListen, "the `address` to listen on, host:port")
	c.Flags().StringSliceVar(&s.hosts, "host", nil, "a host `name` by which others, or a proxy, may ask for the page, besides this machine's")
	describe.ExpectFlag(c.Flags(), &s.expect)
	c.Flags().StringSliceVar(&s.exclude, "exclude", nil, "leave out locks whose names match one of these `patterns`")
	c.Flags().BoolVar(&s.released, "released", false, "read and show locks that were released, too: thousands, maybe")
	c.Flags().StringVar(&s.prefix, "prefix", "", "show only locks whose names begin with this `text`")
	c.Flags().BoolVar(&s.partitionMetrics, "partition-metrics", false, "export metrics of each partition too: eight series for each")
	c.Flags().DurationVar(&s.every, "every", time.Second, "how often to read the table, at most")
	return c
}

func (s *serving) run(ctx context.Context) error {
	if s.every < 10*time.Millisecond {
		return exit.Misuse("--every %v: must be at least 10ms", s.every)
	}
	excluded, err := matching(s.exclude)
	if err != nil {
		return err
	}
	if s.expect, err = describe.CheckExpected(s.expect); err != nil {
		return err
	}
	db, err := s.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	on, err := ListenOn(s.listen)
	if err != nil {
		return err
	}
	defer on.Close()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	terminal.Stderr.Time()
	exit.OutliveReaders()
	server := s.server(db, excluded)
	answered := make(chan error, 1)
	go func() { answered <- serve.Serve(ctx, on, s.guarded(on.Addr(), server)) }() // while the database may be away
	if err := server.Look(ctx); err != nil && !connect.Passing(err) {
		return s.Explain(err) // probably a mistake
	}
	fmt.Printf("%s in %s is shown at %s\n", s.Table, s.Path, terminal.URL(on.Addr()))
	go server.Watch(ctx)
	return <-answered
}

// guarded returns the handler for an address. If other machines can reach it, guarded says so, and lets them ask by this
// machine's names.
func (s *serving) guarded(at net.Addr, server *serve.Server) http.Handler {
	hosts := s.hosts
	if !local(at) {
		terminal.Complain("listening on %v, open to everybody who can reach it: there is no log-in. Unless they may all see every lock, holder and value, listen on 127.0.0.1, behind a proxy with a log-in", at)
		hosts = append(hosts, s.ownNames()...)
	}
	return serve.OnlyFor(hosts, server.Handler())
}

// ownNames returns the names of this machine, and the name in --listen.
func (s *serving) ownNames() (names []string) {
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	if name, _, err := net.SplitHostPort(s.listen); err == nil && name != "" {
		names = append(names, name)
	}
	return names
}

func (s *serving) server(db *connect.Connection, excluded func(string) bool) *serve.Server {
	return serve.New(serve.Config{
		Locks: db.Locks(), Prefix: s.prefix, Database: s.Path, Table: s.Table, Every: s.every, Timeout: s.limit(),
		Expect: s.expect, Exclude: excluded, Released: s.released, PartitionMetrics: s.partitionMetrics,
		Show: terminal.Show, Explain: s.Explain,
		Failing: func(err error) {
			if err != nil {
				terminal.Complain("can't read the locks, will try again: %v", s.Explain(err))
				return
			}
			terminal.Complain("the locks can be read again")
		},
	})
}

// limit returns how long a read of the table may take: one that hangs is tried again soon, unless --timeout says how long a
// large table needs.
func (s *serving) limit() time.Duration {
	if s.FlagSet != nil && s.FlagSet.Changed("timeout") {
		return s.Timeout
	}
	return min(s.Timeout, max(5*time.Second, 5*s.every))
}

// ListenOn listens at the address in --listen.
func ListenOn(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, exit.Misuse("--listen %q: want host:port, such as %s: %w", address, DefaultListen, err)
	}
	on, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w: is a spindle serve running? Port 0 takes a free one", address, err)
	}
	return on, nil
}

// local reports whether only this machine can reach an address.
func local(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// OnePage returns the server and the handler of one lock's page, at an address.
func OnePage(o *connect.Database, db *connect.Connection, lock, listen string, at net.Addr) (*serve.Server, http.Handler) {
	s := &serving{Database: o, prefix: lock, every: 200 * time.Millisecond, listen: listen, expect: []string{lock}}
	server := s.server(db, nil)
	return server, s.guarded(at, server)
}
