// Package serve implements the command serve, which shows a lock table over HTTP: as a web page for people, and as
// metrics for Prometheus. It only reads the table.
//
//   - serve.go: the command serve and its flags
//   - server.go: the loop that reads the table
//   - history.go: the terms of the last hour that the reads have shown, and which locks pages show
//   - wire.go: the JSON that is sent to open pages
//   - feed.go: what an open page gets next
//   - http.go: the HTTP handlers, and the check of the Host header
//   - metrics.go: the metrics for Prometheus
//   - page: the web page, which loads nothing from other sites
package serve

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const serveHelp = `Serve shows the lock table on a web page and exports metrics to Prometheus,
until it is interrupted. Its paths are:

  /         the page: each lock with its holder, a bar that shows how much of
            the lease is left, and a timeline of its terms in the last hour
  /metrics  metrics for Prometheus; deploy/prometheus has alert rules, and
            deploy/grafana has a dashboard for Grafana. The partitions of a
            group are counted by state
  /healthz  200 if the table was read recently, otherwise 503 and the reason

Serve reads the table at most once per --every interval, however many pages are
open, and never writes to it. Reads of the whole table have low priority. If
they take longer than 0.1 seconds, as with a large table, serve pauses for nine
times as long between reads, but for at most a minute. The page shows how old
its data is. Serve shows the locks of all programs, whatever language they are
written in.

The table keeps no history, so the timelines begin with the terms that are
current when serve is started. A term that begins and ends between two reads is
missed, or shown without its holder.

Use --expect to name the locks that should always be held. They appear on the
page and in the metrics even if they have no row, so that an alert can detect a
lock that was never taken. Most other released locks are omitted unless
--released is given.

Use --exclude to leave out locks whose names match a pattern. In a pattern, *
matches any text and ? matches one character, as in --exclude 'order-*,test/*'.

Serve has no authentication, so everyone who can reach it sees every lock,
holder and value. It listens only on this machine, unless --listen gives another
address. To let other people see the page, put a proxy with a login in front of
it.

Serve accepts requests that are addressed to an IP address or to localhost. If
other machines can reach it, serve also accepts requests for the machine's own
name and for a host name in --listen. It rejects requests for other host names,
because a malicious site could otherwise read the data through a user's browser.
To allow more host names, use --host.
`

// DefaultListen is the address on which serve listens by default.
const DefaultListen = "127.0.0.1:8117"

// NewServe returns the command serve.
func NewServe(o *database.Database) *cobra.Command {
	s := &Config{Database: o}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Show the locks on a web page and export metrics to Prometheus",
		Long:  serveHelp + terminal.CommonCodes,
		Example: `  spindle serve
  spindle serve --expect nightly,billing/leader --exclude 'order-*'
  spindle serve --listen :8117    # for everyone who can reach this machine
  curl -s localhost:8117/metrics | grep spindle_lock_held`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	c.Flags().StringVar(&s.Listen, "listen", DefaultListen, "the `address` to listen on, as host:port")
	c.Flags().StringSliceVar(&s.Hosts, "host", nil, "also accept requests for this host `name`")
	model.ExpectFlag(c.Flags(), &s.Expect)
	c.Flags().StringSliceVar(&s.Exclude, "exclude", nil, "leave out locks whose names match one of these `patterns`")
	c.Flags().BoolVar(&s.Released, "released", false, "also read and show released locks, of which there may be thousands")
	c.Flags().StringVar(&s.Prefix, "prefix", "", "show only locks whose names begin with this `text`")
	c.Flags().DurationVar(&s.Every, "every", time.Second, "minimum time between reads of the table")
	return c
}

func (s *Config) run(ctx context.Context) (err error) {
	if s.Every < 10*time.Millisecond {
		return terminal.Misuse("--every %v: must be at least 10ms", s.Every)
	}
	if !s.FlagSet.Changed("timeout") { // retry soon if a read hangs; a large table may need a longer --timeout
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
	server, err := New(*s, db.Locks())
	if err != nil {
		return err
	}
	ctx, stop := terminal.UntilInterrupted(ctx)
	defer stop()
	terminal.Stderr.Time()
	terminal.OutliveReaders()
	url, ended, err := server.Start(ctx) // even while the database can't be reached
	if err != nil {
		return err
	}
	switch err := server.Look(ctx); {
	case ctx.Err() != nil:
		return <-ended
	case err != nil && !database.Passing(err):
		return err // probably a mistake by the user
	}
	fmt.Printf("%s in %s is shown at %s\n", s.Table, s.Path, url)
	go server.Watch(ctx)
	return <-ended
}

// matching returns a function that reports whether a name matches any of the patterns. In a pattern, * matches any
// text, including slashes, and ? matches one character.
func matching(patterns []string) (func(name string) bool, error) {
	any := []string{"$^"} // matches only the empty string, which is not a name
	for _, p := range patterns {
		if p == "" {
			return nil, terminal.Misuse("--exclude: a pattern is empty; give the name of a lock, or a pattern such as 'order-*'")
		}
		any = append(any, strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(p)))
	}
	return regexp.MustCompile(`(?s)^(` + strings.Join(any, "|") + `)$`).MatchString, nil
}
