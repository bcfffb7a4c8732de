package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/table"
)

// inVirtualTime serves a table of a thousand locks, and lets a client talk to it.
func inVirtualTime(t *testing.T, talk func(t *testing.T, dial func(says string) net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		var all []table.Row
		for i := range 1000 {
			all = append(all, held(fmt.Sprint("job", i), "a", "", time.Now().Add(-time.Minute), time.Now())...)
		}
		s := serverOn(&rows{rows: all}, Config{}, time.Second)
		require.NoError(t, s.Look(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		on := commandtest.NewPipes()
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, on, s.Handler()) }()
		talk(t, func(says string) net.Conn {
			client := on.Dial()
			t.Cleanup(func() { _ = client.Close() })
			go func() { _, _ = io.WriteString(client, says) }()
			return client
		})
		stop()
		require.NoError(t, <-ended)
	})
}

// A client that connects, and takes or sends nothing for long, does not keep a goroutine or memory forever.
func TestWhoIsSlowIsDropped(t *testing.T) {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	for what, is := range map[string]struct {
		says  string
		takes int // bytes of the answer
		limit time.Duration
	}{
		"metrics that are not read":     {get("/metrics"), 100, slow},
		"a page that is not read":       {get("/main.js"), 100, slow},
		"events that are not read":      {get("/events"), 100, stall},
		"a header that does not end":    {"GET / HTTP/1.1\r\nHost:", 0, 10 * time.Second},
		"nothing":                       {"", 0, 10 * time.Second},
		"a connection without requests": {get("/healthz"), 1 << 20, time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, dial func(string) net.Conn) {
				client := dial(is.says)
				if is.takes < 1<<20 {
					_, err := io.ReadFull(client, make([]byte, is.takes))
					require.NoError(t, err)
				} else {
					answer, err := http.ReadResponse(bufio.NewReader(client), nil)
					require.NoError(t, err)
					_, _ = io.Copy(io.Discard, answer.Body)
				}
				time.Sleep(is.limit + time.Second)
				began := time.Now()
				_, _ = io.Copy(io.Discard, client) // what is under way, and then the end
				assert.Less(t, time.Since(began), 2*time.Second, "the connection is closed")
			})
		})
	}
}

// A client that does not read, or reads slowly, keeps nobody else from the same path: two Prometheus servers may scrape at once.
func TestAClientThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, dial func(string) net.Conn) {
		for _, path := range []string{"/", "/main.js", "/events", "/metrics", "/healthz"} {
			for range 3 {
				_, err := io.ReadFull(dial("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"), make([]byte, 1))
				require.NoError(t, err)
			}
			began := time.Now()
			answer, err := http.ReadResponse(bufio.NewReader(dial("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")), nil)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, answer.StatusCode, path)
			assert.Zero(t, time.Since(began), path)
		}
	})
}

// A page that reads gets frames as long as it is open: the limit is for each frame. While the table is not read, the frames say for
// how long it has not been.
func TestAPageThatReadsStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, dial func(string) net.Conn) {
		client := dial("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		heard := make(chan string, 1000)
		go func() {
			for lines := bufio.NewReader(client); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					close(heard)
					return
				}
				if strings.HasPrefix(line, "event: tick") {
					line, _ = lines.ReadString('\n')
					heard <- line
				}
			}
		}()
		time.Sleep(10*time.Minute + time.Second)
		require.Len(t, heard, 301, "one with the snapshot, and then one each two seconds")
		for i := range 301 {
			assert.Equal(t, fmt.Sprintf("data: {\"old\":%d}\n", 2000*i), <-heard, "it says how old the data is")
		}
	})
}

// The server does not wait for a body that never comes.
func TestWhoSendsABodyIsNotWaitedFor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, dial func(string) net.Conn) {
		for _, path := range []string{"/", "/events", "/metrics"} {
			for _, body := range []string{"Content-Length: 100000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n8\r\n{"} {
				client := dial("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + body)
				began := time.Now()
				answer, err := http.ReadResponse(bufio.NewReader(client), nil)
				require.NoError(t, err)
				assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
				assert.Less(t, time.Since(began), time.Second)
				_, _ = io.Copy(io.Discard, client)
				assert.Less(t, time.Since(began), 3*time.Second, body)
			}
		}
	})
}

// A proxy with a login may add large cookies to each request.
func TestARequestMayHaveLargeCookies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, dial func(string) net.Conn) {
		answer, err := http.ReadResponse(bufio.NewReader(dial("GET /healthz HTTP/1.1\r\nHost: localhost\r\nCookie: "+strings.Repeat("x", 60<<10)+"\r\n\r\n")), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, answer.StatusCode)
	})
}
