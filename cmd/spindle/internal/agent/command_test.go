//go:build unix

package agent

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// Every flag of the agent is checked before it serves: a wrong mode would let others take locks, or keep programs from them.
func TestTheAgentsFlagsAreChecked(t *testing.T) {
	for _, c := range []struct {
		set  func(*serving)
		path string
		mode fs.FileMode
		says string
	}{
		{func(*serving) {}, "/tmp/s", 0o660, ""},
		{func(s *serving) { s.mode = "0" }, "/tmp/s", 0, ""},
		{func(s *serving) { s.mode = "777" }, "/tmp/s", 0o777, ""},
		{func(s *serving) { s.mode = "1000" }, "", 0, `--mode "1000"`},
		{func(s *serving) { s.mode = "68" }, "", 0, `--mode "68"`},
		{func(s *serving) { s.mode = "" }, "", 0, `--mode ""`},
		{func(s *serving) { s.mode = "-1" }, "", 0, `--mode "-1"`},
		{func(s *serving) { s.listen = "unix:a" }, "a", 0o660, ""},
		{func(s *serving) { s.listen = "unix:" }, "", 0, `--listen "unix:"`},
		{func(s *serving) { s.listen = "/tmp/s" }, "", 0, `--listen "/tmp/s"`},
		{func(s *serving) { s.listen = "127.0.0.1:80" }, "", 0, "TCP is not supported"},
		{func(s *serving) { s.maxHolds = 1 }, "/tmp/s", 0o660, ""},
		{func(s *serving) { s.maxHolds = 0 }, "", 0, "--max-holds 0"},
		{func(s *serving) { s.maxHolds = -1 }, "", 0, "--max-holds -1"},
		{func(s *serving) { s.allow = []string{"a/", "b"} }, "/tmp/s", 0o660, ""},
		{func(s *serving) { s.allow = []string{"a/", ""} }, "", 0, "--allow-name: "},
		{func(s *serving) { s.allow = []string{"\x00", "b"} }, "", 0, "--allow-name: "},
	} {
		s := &serving{listen: "unix:/tmp/s", mode: "0660", maxHolds: 10}
		c.set(s)
		path, mode, err := s.check()
		if c.says == "" {
			assert.NoError(t, err)
			assert.Equal(t, []any{c.path, c.mode}, []any{path, mode})
			continue
		}
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit, c.says)
		assert.Equal(t, terminal.Misused, exit.Code)
		assert.ErrorContains(t, err, c.says)
	}
}

// An agent that is asked to end tells its programs and its service manager, gives out no more locks, and ends once its programs have
// released theirs and have read so. While it serves, everything is as its flags say.
func TestAnAgentServesUntilItsProgramsHaveReleasedTheirLocks(t *testing.T) {
	said := commandtest.Captured(t)
	systemd := commandtest.NewSystemd(t, patience)
	t.Setenv("NOTIFY_SOCKET", systemd.Socket)
	b := &bed{TB: t, store: &memstore.Store{}, socket: filepath.Join(t.TempDir(), "s"), settle: func() {}}
	b.dial = func(string) net.Conn {
		c, err := net.Dial("unix", b.socket)
		require.NoError(t, err)
		return c
	}
	on, err := listenOn(b.socket, 0o600)
	require.NoError(t, err)
	s := &serving{Database: &database.Database{Path: "projects/p/instances/i/databases/d", Table: "mytable"}, probes: "127.0.0.1:0", allow: []string{"ok/"}, maxHolds: 20}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, on, Config{Locks: table.Table{Store: b.store}}) }()
	assert.Empty(t, systemd.Until("READY=1"))

	p := b.asks("", "POST /v1/locks?name=ok/a&lease=1h&label=job")
	held := p.reads("held")
	assert.Contains(t, held.Fence[0].GoogleSQL, "UPDATE mytable ")
	status, j := b.call("", "POST /v1/locks?name=other")
	assert.Equal(t, []any{http.StatusForbidden, "name-not-allowed"}, []any{status, j["code"]})
	var more []*stream
	for i := range 9 {
		more = append(more, b.asks("", fmt.Sprintf("POST /v1/%s?eof=release&lease=1h&name=ok/b%d", []string{"elections", "locks"}[min(i, 1)], i)))
		more[i].reads("held")
	}
	b.refuses("", "ok/c") // one program has half of --max-holds
	for _, s := range more {
		_ = s.Close()
	}
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "serving locks") }, patience, time.Millisecond)
	url := regexp.MustCompile(`answering probes at (http://127\.0\.0\.1:\d+)`).FindStringSubmatch(said.String())[1]
	live := func() error {
		r, err := http.Get(url + "/livez")
		if err == nil {
			_ = r.Body.Close()
		}
		return err
	}
	require.NoError(t, live())

	end()
	assert.Empty(t, systemd.Until("STOPPING=1"))
	assert.Equal(t, "agent-stops", p.reads("stop").Reason)
	require.Eventually(t, func() bool { // once the other holds, which end with their streams, no longer count
		status, j = b.call("", "POST /v1/locks?name=ok/e")
		return status == http.StatusServiceUnavailable && j["code"] == "stopping"
	}, patience, time.Millisecond)
	require.NoError(t, live(), "its probes are answered as long as it has holds")
	testcheck.None(t, ended, "the end of an agent while a lock is held")
	status, j = b.call("", "POST /v1/holds/"+held.Hold+"/release")
	assert.Equal(t, http.StatusOK, status, j)
	p.ends()
	assert.NoError(t, testcheck.Await(t, ended, "the end of the agent"))
	assert.Error(t, live(), "nothing answers for an agent that has ended")
	_, err = net.Dial("unix", b.socket)
	assert.Error(t, err)
	for _, line := range []string{
		`serving locks of the table mytable in projects/p/instances/i/databases/d on the socket ` + b.socket,
		`held: kind=locks names=\[ok/a\] holder=[^ /]+/\d+/job.*/[0-9a-f]{16} token=\d+`,
		`shutting down: waiting for programs to release their locks`,
		`asked to release it: .* reason=agent-stops`,
		`released: `,
	} {
		assert.Regexp(t, `(?m)^\d{4}-\d\d-\d\dT[0-9:.]+Z spindle: `+line, said.String())
	}
	assert.NotRegexp(t, `spindle: (elected|lost): table=`, said.String(), "a lock's own messages are for programs that use the library")
}

// An agent that can't answer probes at the address that it was given does not serve without them: nobody would notice its state.
func TestAnAgentDoesNotServeWithoutItsProbes(t *testing.T) {
	commandtest.Captured(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	on, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	s := &serving{Database: &database.Database{}, probes: taken.Addr().String(), maxHolds: 1}
	err = s.serve(t.Context(), on, Config{Locks: table.Table{Store: &memstore.Store{}}})
	require.ErrorContains(t, err, "--probe-listen "+s.probes)
}
