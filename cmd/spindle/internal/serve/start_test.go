package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// answer is the status of a server's answer to a request for a host, which is not sent if it is "none".
func answer(t *testing.T, url, host string) int {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	request := "GET /main.js HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	if host == "none" {
		request = "GET /main.js HTTP/1.0\r\n\r\n"
	}
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return response.StatusCode
}

// The server answers for the names that its flags allow, and for this machine's own name only if other machines reach it
// anyway. It says when they do. It ends at once when it is told to, also while a page is open.
func TestAServerAnswersForItsOwnNamesAndEndsAtOnce(t *testing.T) {
	own, err := os.Hostname()
	require.NoError(t, err)
	for listen, c := range map[string]struct {
		public bool
		name   string // in the URL
	}{
		"127.0.0.1:0": {false, "127.0.0.1"}, "localhost:0": {false, "127.0.0.1"}, ":0": {true, "localhost"}, "0.0.0.0:0": {true, "localhost"},
	} {
		s := serverOn(&rows{}, Config{Listen: listen, Hosts: []string{"locks.example"}}, time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var url string
		var ended <-chan error
		said := commandtest.Complaints(func() { url, ended, err = s.Start(ctx) })
		require.NoError(t, err)
		assert.Equal(t, c.public, strings.Contains(fmt.Sprint(said), "without authentication"), "%s: %v", listen, said)
		assert.Regexp(t, "^http://"+c.name+`:\d+$`, url)
		of := map[bool]int{true: 200, false: 421}
		for host, want := range map[string]int{"localhost": 200, "10.0.0.7": 200, "locks.example": 200, "evil.example": 421, "none": 421, own: of[c.public]} {
			assert.Equal(t, want, answer(t, url, host), "%s: %s", listen, host)
		}
		assert.Equal(t, []string{"locks.example"}, s.Hosts)

		other := serverOn(&rows{}, Config{Listen: "127.0.0.1:" + url[strings.LastIndex(url, ":")+1:]}, time.Second)
		if !c.public {
			_, _, err = other.Start(ctx)
			assert.ErrorContains(t, err, "another spindle serve may be running")
		}
		page := openTab(t, url)
		page.next(t, "snapshot", &snapshotFrame{})
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v", err)
		case <-s.Opened():
		}
		stop()
		assert.NoError(t, <-ended)
		for page.Scan() { // to the end
		}
	}
	for _, listen := range []string{"8117", "", "[::1"} {
		_, _, err := serverOn(&rows{}, Config{Listen: listen}, time.Second).Start(t.Context())
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 2, exit.Code)
	}
}

// A server whose listener fails says so: the command ends with the error, rather than run without a page.
func TestAServerThatCanNoLongerListenSaysWhy(t *testing.T) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, on.Close())
	assert.ErrorIs(t, serve(t.Context(), on, http.NotFoundHandler()), net.ErrClosed)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	assert.NoError(t, serve(ctx, on, http.NotFoundHandler()))
}

// stuck is a table whose reads hang until their context ends.
type stuck struct{ table.Store }

func (stuck) Read(ctx context.Context, _ string, _ table.Bound, _ table.Keys) ([]table.Row, time.Time, error) {
	<-ctx.Done()
	return nil, time.Time{}, ctx.Err()
}

// A read that hangs ends with its timeout and counts as failed. One that is interrupted with the command does not: no
// outage is logged because somebody pressed Ctrl+C.
func TestALookEndsWithItsTimeoutOrWithTheCommand(t *testing.T) {
	for _, c := range []struct{ interrupted, limit time.Duration }{{time.Hour, time.Second}, {time.Second / 2, time.Second / 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := serverOn(stuck{}, Config{}, time.Second)
			s.Every = time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), c.interrupted)
			defer cancel()
			began := time.Now()
			time.AfterFunc(c.limit/2, func() {
				if assert.True(t, s.mu.TryLock(), "meanwhile, pages, metrics and healthz are answered") {
					s.mu.Unlock()
				}
			})
			said := commandtest.Complaints(func() { assert.ErrorIs(t, s.Look(ctx), context.DeadlineExceeded) })
			assert.Equal(t, c.limit, time.Since(began))
			failures := 0
			if c.interrupted > c.limit {
				failures = 1
			}
			assert.Len(t, said, failures)
			assert.Equal(t, fmt.Sprint(failures), s.series("spindle_table_read_failures_total "))
			assert.Equal(t, []any{failures, failures == 1}, []any{s.feed.version, s.away != nil})
			assert.Empty(t, s.series("spindle_table_read_duration_seconds_count 1"), "only a read that succeeds has a duration")
		})
	}
}

// command returns serve with flags, for a database that accepts connections and never answers. It calls asked at each one.
func command(t *testing.T, asked func(), every time.Duration, args ...string) *Config {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // when it no longer listens
			asked()
		}
	}()
	t.Setenv("SPANNER_EMULATOR_HOST", silent.Addr().String())
	c := &Config{Database: &database.Database{}, Listen: "127.0.0.1:0", Every: every}
	c.Flags(pflag.NewFlagSet("", pflag.ContinueOnError))
	require.NoError(t, c.FlagSet.Parse(append([]string{"--db", "projects/p/instances/i/databases/d"}, args...)))
	return c
}

// A stop is no failure, even while the first read waits for a database that does not answer: a service that is stopped then
// has not failed.
func TestServeThatIsInterruptedHasNotFailed(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	assert.NoError(t, command(t, interrupt, time.Second, "--timeout", "1h").run(ctx))
	assert.NoError(t, command(t, func() {}, time.Second).run(ctx), "before the first read")
}

// Serve listens before it asks the database, so that a probe gets an answer while that is away. An address that is in use is
// therefore said at once.
func TestServeListensBeforeItAsksTheDatabase(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	c := command(t, interrupt, time.Second, "--timeout", "1h")
	c.Listen = os.Getenv("SPANNER_EMULATOR_HOST")
	assert.ErrorContains(t, c.run(ctx), "another spindle serve may be running")
}

// Serve retries soon if a read hangs, but leaves a read of a large table the time that a user gives it.
func TestAReadHasTheTimeThatTheFlagsGiveIt(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		every   time.Duration
		args    []string
		timeout time.Duration
	}{
		{10 * time.Millisecond, nil, 5 * time.Second}, {time.Second, nil, 5 * time.Second}, {2 * time.Second, nil, 10 * time.Second}, {time.Minute, nil, 20 * time.Second},
		{time.Second, []string{"--timeout", "1m"}, time.Minute}, {time.Second, []string{"--timeout", "20s"}, 20 * time.Second}, {time.Minute, []string{"--timeout", "2s"}, 2 * time.Second},
	} {
		s := command(t, func() {}, c.every, c.args...)
		_ = s.run(stopped)
		assert.Equal(t, c.timeout, s.Timeout, "--every %v %v", c.every, c.args)
	}
	for _, every := range []time.Duration{-time.Second, 0, 10*time.Millisecond - 1} {
		err := command(t, func() {}, every).run(stopped)
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, terminal.Misused, exit.Code)
		assert.ErrorContains(t, err, "must be at least 10ms")
	}
}

// Each read is counted as what it was, and open pages are told why it has failed, not only the first of an outage: an alert
// on the rate of failures relies on it, and what is wrong can change.
func TestEachReadIsCounted(t *testing.T) {
	r := &rows{}
	s := serverOn(r, Config{}, time.Second)
	failed, page := 0, view{version: never}
	commandtest.Complaints(func() {
		for n, text := range []string{"", "one", "two", "", "", "three"} {
			if r.err = nil; text != "" {
				r.err = errors.New(text)
				failed++
			}
			_ = s.Look(t.Context())
			page.takes(t, s)
			if assert.Equal(t, text != "", page.Away != nil) && text != "" {
				assert.Equal(t, text, page.Away.Error)
			}
			assert.Equal(t, fmt.Sprint(failed), s.series("spindle_table_read_failures_total "))
			assert.Equal(t, fmt.Sprint(n+1-failed), s.series("spindle_table_read_duration_seconds_count "))
		}
	})
}

// Data is as old as the beginning of its read: what happened during a slow read may not be in it. Before the first read, there is no data
// that could be old.
func TestTheAgeOfTheDataCountsFromTheBeginningOfItsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		time.Sleep(time.Minute)
		first, _, _ := d.since(never)
		assert.Contains(t, string(first[0]), `{"at":0,`)
		assert.Equal(t, "event: tick\ndata: {\"old\":0}\n\n", string(first[1]))
		assert.Equal(t, first[1], d.tick())
		d.reads.delay = 7 * time.Second
		require.NoError(t, d.Look(t.Context()))
		assert.Equal(t, `{table="locktable"} 7`, d.series("spindle_table_read_age_seconds"))
		assert.Equal(t, 7*time.Second, d.old())
		assert.Equal(t, "7", d.series("spindle_table_read_duration_seconds_sum "))
		time.Sleep(time.Second)
		frames, _, _ := d.since(never)
		assert.Contains(t, string(frames[1]), `{"old":8000}`)
		assert.Contains(t, string(d.tick()), `{"old":8000}`)
	})
}

// Watch begins with a read, pauses between two reads, and ends with its context, also in the middle of a pause.
func TestWatchReadsAtOnceAndThenAfterEachPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOn(&rows{}, Config{}, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		reads := func() int { _, n, _ := s.since(never); return n }
		done := make(chan struct{})
		go func() { s.Watch(ctx); close(done) }()
		for n := 1; n < 5; n++ {
			synctest.Wait()
			assert.Equal(t, n, reads())
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second / 2)
		stopped := time.Now()
		cancel()
		<-done
		assert.Equal(t, stopped, time.Now())
		assert.Equal(t, 5, reads())
	})
}

// What users are told of an outage is what they can do about it: in the log, on the page, by /healthz, and when the command
// gives up.
func TestAnOutageIsExplainedWhereverItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := status.Error(codes.PermissionDenied, "not yours")
		s := serverOn(&rows{err: refused}, Config{}, time.Second)
		want := s.Explain(refused).Error()
		require.NotEqual(t, refused.Error(), want)
		said := commandtest.Complaints(func() {
			assert.EqualError(t, s.Look(t.Context()), want)
			time.Sleep(3 * time.Second)
		})
		require.Len(t, said, 1)
		hint, _, _ := strings.Cut(strings.TrimPrefix(want, refused.Error()), "\n")
		assert.Contains(t, said[0], strings.TrimSpace(hint))
		_, health := get(s, "/healthz")
		assert.Contains(t, health, want)
		assert.Equal(t, &awayFrame{For: 3000, Error: want}, s.awayFrame(), "since the server was created")
		s.looked = time.Now().Add(-time.Minute)
		assert.Equal(t, &awayFrame{For: 60000, Error: want}, s.awayFrame(), "since the last read that succeeded")
		assert.True(t, errors.Is(s.stale(), s.away))
	})
}

// A pattern matches whole names, in which * is any text, also across slashes and lines, ? is one character, and nothing else
// has a meaning: a lock that is left out by mistake is missing in every alert.
func TestAPatternMatchesTheWholeNameAndOnlyStarsAndQuestionMarksMeanMore(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"order-*": {"order-": true, "order-1": true, "order-a/b\nc": true, "xorder-1": false, "order": false},
		"a?c":     {"abc": true, "a/c": true, "a夜c": true, "ac": false, "abbc": false},
		"a.c|d":   {"a.c|d": true, "abc": false, "d": false, "a.c": false},
		"*":       {"x": true, "x/y": true},
		"[ab]$":   {"[ab]$": true, "a": false},
		`a\*`:     {`a\b`: true, "a*": false},
		"?":       {"x": true, "xy": false},
	} {
		for _, beside := range [][]string{nil, {"other"}} {
			match, err := matching(append([]string{pattern}, beside...))
			require.NoError(t, err)
			for name, want := range names {
				assert.Equal(t, want, match(name), "%s: %q", pattern, name)
			}
			assert.Equal(t, beside != nil || pattern == "*", match("other"))
			_, err = matching(append(beside, "", pattern))
			assert.Error(t, err)
		}
	}
	none, err := matching(nil)
	require.NoError(t, err)
	assert.False(t, none("x"))
}
