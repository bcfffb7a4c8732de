package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const serveHelp = `Serve shows the lock table on a web page and exports metrics to Prometheus,
until it is interrupted:

  /         the page: each lock with its holder, a bar that shows how much of
            the lease is left, and a timeline of its terms in the last hour
  /metrics  metrics for Prometheus; deploy/prometheus has alert rules, and
            deploy/grafana has a dashboard for Grafana. The partitions of a
            group are counted by state
  /healthz  200 if the table was read recently, otherwise 503 and the reason

Serve reads the table once per --every interval, however many pages are open,
and never writes to it. Its reads have low priority and take up at most a tenth
of the time. A large table is therefore read less often, and the page shows how
old its data is. Serve shows the locks of all programs, whatever language they
are written in.

The table keeps no history, so the timelines begin when serve is started. A term
that begins and ends between two reads is missed.

Use --expect to name the locks that should always be held. They are on the page
and in the metrics even if they have no row, so that an alert can detect a lock
that was never taken. Released locks are not read unless --released is given.

Use --exclude to leave out locks whose names match a pattern. In a pattern, *
matches any text and ? matches one character, as in --exclude 'order-*,test/*'.

Serve has no authentication, so everyone who can reach it sees every lock,
holder and value. It listens only on this machine, unless --listen gives another
address. To let other people see the page, put a proxy with a login in front of
it.

Serve accepts requests that are addressed to an IP address, to localhost or to
the machine's own name. It rejects requests for other host names, because a
malicious site could otherwise read the data through a user's browser. To allow
more host names, use --host.
`

// DefaultListen is where serve listens without --listen.
const DefaultListen = "127.0.0.1:8117"

// NewServe returns the command serve.
func NewServe(o *connect.Database) *cobra.Command {
	s := &Config{Database: o}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Show the locks on a web page and export metrics to Prometheus",
		Long:  serveHelp + flags.CommonCodes,
		Example: `  spindle serve
  spindle serve --expect nightly,billing/leader --exclude 'order-*'
  spindle serve --listen :8117    # for everyone who can reach this machine
  curl -s localhost:8117/metrics | grep spindle_lock_held`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.Listen, "listen", DefaultListen, "the `address` to listen on, as host:port")
	c.Flags().StringSliceVar(&s.Hosts, "host", nil, "also accept requests for this host `name`")
	model.ExpectFlag(c.Flags(), &s.Expect)
	c.Flags().StringSliceVar(&s.Exclude, "exclude", nil, "leave out locks whose names match one of these `patterns`")
	c.Flags().BoolVar(&s.Released, "released", false, "also read and show released locks, of which there may be thousands")
	c.Flags().StringVar(&s.Prefix, "prefix", "", "show only locks whose names begin with this `text`")
	c.Flags().DurationVar(&s.Every, "every", time.Second, "the shortest pause between two reads of the table")
	return c
}

func (s *Config) run(ctx context.Context) (err error) {
	if s.Every < 10*time.Millisecond {
		return exit.Misuse("--every %v: must be at least 10ms", s.Every)
	}
	if !s.FlagSet.Changed("timeout") { // a read that hangs is soon retried, unless a large table needs longer
		s.Timeout = min(s.Timeout, max(5*time.Second, 5*s.Every))
	}
	if s.Expect, err = model.CheckExpected(s.Expect); err != nil {
		return err
	}
	db, err := s.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	on, err := ListenOn(s.Listen)
	if err != nil {
		return err
	}
	defer on.Close()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	terminal.Stderr.Time()
	exit.OutliveReaders()
	server, err := New(*s, db.Locks())
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- Serve(ctx, on, server.guarded(on.Addr())) }() // even while the database can't be reached
	if err := server.Look(ctx); err != nil && !connect.Passing(err) {
		return s.Explain(err) // probably a mistake by the user
	}
	fmt.Printf("%s in %s is shown at %s\n", s.Table, s.Path, terminal.URL(on.Addr()))
	go server.Watch(ctx)
	return <-answered
}

// guarded returns the handler for requests to an address. If other machines can reach the address, guarded logs a
// warning, and the handler also accepts requests for this machine's names.
func (s *Server) guarded(at net.Addr) http.Handler {
	hosts := s.Hosts
	if tcp, ok := at.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		terminal.Complain("listening on %v without authentication, so everyone who can reach this address sees every lock, holder and value; to restrict access, listen on 127.0.0.1 behind a proxy with a login", at)
		name, _ := os.Hostname()
		listens, _, _ := net.SplitHostPort(s.Listen)
		hosts = append(hosts, name, listens)
	}
	return OnlyFor(slices.DeleteFunc(hosts, func(name string) bool { return name == "" }), s.Handler())
}

// ListenOn listens on an address that --listen gives.
func ListenOn(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, exit.Misuse("--listen %q must be host:port, such as %s: %w", address, DefaultListen, err)
	}
	on, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w; another spindle serve may be running (port 0 selects a free port)", address, err)
	}
	return on, nil
}

// OnePage returns a server and a handler for a page that shows one lock, at an address.
func OnePage(o *connect.Database, db *connect.Connection, lock, listen string, at net.Addr) (*Server, http.Handler) {
	server, err := New(Config{Database: o, Prefix: lock, Every: 200 * time.Millisecond, Listen: listen, Expect: []string{lock}}, db.Locks())
	if err != nil {
		panic(err) // no pattern is wrong, because there is none
	}
	return server, server.guarded(at)
}
