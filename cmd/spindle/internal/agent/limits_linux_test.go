package agent

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever clients do, their requests leave no descriptors in the agent once the clients have gone.
func TestClientsThatHaveGoneLeaveNoDescriptors(t *testing.T) {
	b := onSocket(t)
	b.asks("", "POST /v1/locks?name=held&lease=1m").reads("held")
	before := descriptors(t)
	for _, text := range []string{
		"POST /v1/locks?name=held&wait=0 HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /v1/elections?name=held&wait=1h HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /v1/locks?colour=red HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /v1/locks?name=free&wait=1h&eof=release HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /v1/locks?name=" + strings.Repeat("x", 100<<10),
		"POST /v1/stepdown HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
		"POST /v1/stepdown HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		for range 20 {
			conn := b.dial("")
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
		b.call("", "GET /livez") // so all have been accepted
		require.Eventually(t, func() bool { return descriptors(t) <= before }, 45*time.Second, 10*time.Millisecond, text[:min(len(text), 60)])
	}
}

// A body that is sent is ignored, because requests have none.
func TestABodyIsIgnored(t *testing.T) {
	b := onSocket(t)
	for body, status := range map[string]int{"hello": http.StatusOK, strings.Repeat("x", 5000): http.StatusBadRequest} {
		s := b.asks("", "POST /v1/stepdown", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
		assert.Equal(t, status, s.wait())
	}
}

// A request that comes when no descriptors are left may be repeated: it is not refused as if its program could not be
// known. What the kernel gave out before it had none is closed.
func TestARequestWithoutDescriptorsIsUnavailable(t *testing.T) {
	b := onSocket(t)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = uint64(descriptors(t) + 20)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	conn := b.dial("") // accepted while there are descriptors
	b.call("", "GET /livez")
	before := settled(t)
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		taken = append(taken, f)
	}
	for free := range 2 { // for the socket's duplicate, but not for the pidfd
		if free > 0 {
			require.NoError(t, taken[0].Close())
			taken = taken[1:]
		}
		_, err := conn.Write([]byte("POST /v1/locks?name=a HTTP/1.1\r\nHost: a\r\n\r\n"))
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode, string(text))
	}
	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	assert.Equal(t, before, settled(t))
	b.asks("", "POST /v1/locks?name=a&lease=1m").reads("held")
}

// settled returns the number of descriptors once it stays the same: what earlier tests used may be closed only now.
func settled(t *testing.T) (n int) {
	for now := descriptors(t); now != n; now = descriptors(t) {
		n = now
		time.Sleep(200 * time.Millisecond)
	}
	return n
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}
