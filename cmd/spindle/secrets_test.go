//go:build unix

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/iterator"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/lock"
)

// shows has, for each command, the arguments with which it shows the locks m (which is held and waited for), new (whose row has a
// newer format) and cut (whose row is damaged). Those in runs go on until they are told to stop. A command that is in
// neither, or under touchesNothing, fails the test.
var (
	shows = map[string][]string{
		"ls": {"", "--all"}, "status": {"m", "new", "cut", "--expect m,new,cut"}, "members": {"m"}, "doctor": {"--expect m,new,cut"}, "prune": {"--dry-run --older 1ns"},
		"handover": {"m --wait 0s"}, "release": {"new --token 1 --yes"}, "init": {""},
		"exec": {"--name m --try -- true", "--name free --notify=127.0.0.1:0 -- true", "--name new --try -- true"},
	}
	runs = map[string][]string{
		"ls": {"--all --watch"}, "watch": {"--every 50ms"}, "serve": {"--listen 127.0.0.1:0 --every 50ms --expect m,new,cut"},
		"guard": {"--name m --activate true --deactivate true --health-listen 127.0.0.1:0"}, "exec": {"--name m --health-listen 127.0.0.1:0 -- true"},
		"agent": {"--listen unix:SOCKET --probe-listen 127.0.0.1:0 --notify=127.0.0.1:0"},
	}
	touchesNothing = []string{"agent stepdown", "demo", "install", "schema", "version"}
)

// No output of any command has an address or a key for notifications, however it is asked and whatever is wrong with a row.
func TestNoCommandShowsHowProcessesAreNotified(t *testing.T) {
	t.Parallel()
	s := &secrets{T: t}
	e, path := newDatabase(t)
	s.env = append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+e.Addr())
	db, err := e.Connect(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	s.fill(db)
	recorded := commandLine(t)
	for _, command := range commands(recorded) {
		assert.True(t, shows[command] != nil || runs[command] != nil || slices.Contains(touchesNothing, command), "how does %q show the table?", command)
		for _, args := range shows[command] {
			s.run(command + " " + args)
			s.run("__complete " + command + " m")
			if strings.Contains(recorded, "spindle "+command+" --output:") {
				formats := s.run("__complete " + command + " --output=")
				for format := range strings.Lines(formats[:strings.Index(formats, ":")]) {
					s.run(command + " --output " + strings.TrimSpace(format) + " " + args)
				}
			}
			s.run("--log-format json " + command + " " + args)
		}
		for _, args := range runs[command] {
			s.goesOn(command + " " + args)
		}
	}
	assert.NotEmpty(t, s.logged.String())
	s.check("the log of the library", s.logged.String())
}

// commandLine is the recorded list of all commands and their flags.
func commandLine(t *testing.T) string {
	recorded, err := os.ReadFile("internal/cli/commandline.txt")
	require.NoError(t, err)
	return string(recorded)
}

func commands(recorded string) (all []string) {
	for line := range strings.Lines(recorded) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "spindle "); is && !strings.ContainsAny(command, ":$-") {
			all = append(all, command)
		}
	}
	return all
}

// secrets is what must not be shown.
type secrets struct {
	*testing.T
	env    []string
	words  []string
	logged fleet.Log
}

func (s *secrets) check(where, text string) {
	for _, word := range s.words { // a port can be a part of a time or a token
		assert.NotRegexp(s, `(^|[^0-9])`+regexp.QuoteMeta(word)+`([^0-9]|$)`, text, where)
	}
}

// fill fills the table, and learns the secrets in its rows.
func (s *secrets) fill(db *spanner.Client) {
	log := spindle.WithLogger(slog.New(slog.NewTextHandler(&s.logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	at := func(addr string) lock.Option {
		n := notify.New(netip.MustParseAddrPort(addr), elect.SystemClock{}, func([]byte, netip.AddrPort) {})
		return options.Option(func(c *options.Config) { c.Notifier = n })
	}
	own := at("10.66.77.88:17766")
	for _, name := range []string{"m", "new", "cut"} {
		m := lock.New(db, "locktable", name, own, log, spindle.WithLease(time.Hour))
		require.NoError(s, m.Lock(s.Context()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() {
		gone <- lock.New(db, "locktable", "m", at("10.66.77.99:17799"), log, options.Option(func(c *options.Config) { c.Process = "another" })).Lock(ctx)
	}()
	s.Cleanup(func() { cancel(); <-gone })
	require.EventuallyWithT(s, func(c *assert.CollectT) { assert.Len(c, s.read(db), 4) }, time.Minute, 50*time.Millisecond)
	for name, writer := range s.read(db) {
		switch {
		case strings.HasPrefix(name, "new_"):
			writer = strings.Replace(writer, `"v":1,`, `"v":99,`, 1)
		case strings.HasPrefix(name, "cut_"):
			writer = writer[:strings.Index(writer, `"notify"`)+len(`"notify":"10.66.77.88:17766 123456`)]
		case strings.HasPrefix(name, "!wait/"):
			name, writer = strings.TrimSuffix(name, name[len(name)-1:])+"!", writer[:len(writer)-4]
		default:
			continue
		}
		_, err := db.Apply(s.Context(), []*spanner.Mutation{spanner.InsertOrUpdate("locktable", []string{"name", "writer", "heartbeat"}, []any{name, writer, spanner.CommitTimestamp})})
		require.NoError(s, err)
	}
}

// read returns the rows that have secrets, by name.
func (s *secrets) read(db *spanner.Client) map[string]string {
	found := map[string]string{}
	s.words = nil
	rows := db.Single().Query(s.Context(), spanner.Statement{SQL: `SELECT name, writer FROM locktable WHERE writer LIKE '%"notify":"%'`})
	defer rows.Stop()
	for {
		row, err := rows.Next()
		if err == iterator.Done {
			return found
		}
		require.NoError(s, err)
		var name, writer string
		require.NoError(s, row.Columns(&name, &writer))
		found[name] = writer
		secret := regexp.MustCompile(`"notify":"([0-9.]+):(\d+) ([^"]{6})`).FindStringSubmatch(writer)
		s.words = append(s.words, secret[1:]...)
	}
}

// run runs a command to its end, and returns its output.
func (s *secrets) run(line string) string {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "spindle", strings.Fields(line)...)
	c.Env = s.env
	out, _ := c.CombinedOutput() // many fail, which they say
	assert.NotEmpty(s, out, line)
	s.check(line, string(out))
	return string(out)
}

// goesOn runs a command until it has said something, asks all paths of all servers if it is one, and ends it.
func (s *secrets) goesOn(line string) {
	var out fleet.Log
	socket := filepath.Join(s.TempDir(), "s")
	c := exec.CommandContext(s.Context(), "spindle", strings.Fields(strings.ReplaceAll(line, "SOCKET", socket))...)
	c.Env, c.Stdout, c.Stderr = s.env, &out, &out
	require.NoError(s, c.Start())
	url := regexp.MustCompile(`http://[^/\s,;]+`)
	require.Eventually(s, func() bool {
		return url.MatchString(out.String()) || !strings.Contains(line, "listen") && out.String() != ""
	}, time.Minute, 10*time.Millisecond, line)
	if strings.Contains(line, "unix:") {
		require.Eventually(s, func() bool { return strings.Contains(out.String(), "serving locks") }, time.Minute, 10*time.Millisecond)
		s.ask("http://agent", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}})
	}
	if at := url.FindString(out.String()); at != "" {
		s.ask(at, http.DefaultTransport)
	}
	_ = c.Process.Signal(os.Interrupt)
	_ = c.Wait()
	s.check(line, out.String())
}

// paths finds the paths of all servers in their sources.
var paths = sync.OnceValue(func() (all [][]string) {
	for _, pattern := range []string{"internal/serve/*.go", "internal/health/*.go", "internal/agent/*.go"} {
		files, _ := filepath.Glob(pattern)
		files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		for _, file := range files {
			text, _ := os.ReadFile(file)
			all = append(all, regexp.MustCompile(`"(GET|POST) (/[^" ]*)"`).FindAllStringSubmatch(string(text), -1)...)
		}
	}
	return all
})

// ask sends the requests of all servers. A stream is read for a tenth of a second.
func (s *secrets) ask(server string, by http.RoundTripper) {
	require.Greater(s, len(paths()), 10)
	requests := append([][]string{{"", "POST", "/v1/locks"}, {"", "POST", "/v1/elections"}}, paths()...)
	for _, r := range requests {
		for _, name := range []string{"m", "new"} {
			ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
			q, err := http.NewRequestWithContext(ctx, r[1], server+r[2]+"?name="+name, nil)
			require.NoError(s, err)
			if answer, err := by.RoundTrip(q); err == nil {
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				s.check(r[1]+" "+q.URL.String(), string(text))
			}
			cancel()
		}
	}
}
