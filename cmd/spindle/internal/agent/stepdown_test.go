package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// A stepdown waits for programs that do not release their locks until its time is over or it is interrupted. A preStop hook would
// otherwise hang until its pod is killed.
func TestAStepDownEndsInTime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	on, err := net.Listen("unix", socket)
	require.NoError(t, err)
	asked := make(chan struct{}, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(on) }()
	defer server.Close()
	for _, within := range []time.Duration{time.Hour, 50 * time.Millisecond} {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		ended := make(chan error, 1)
		go func() { ended <- (&steppingDown{socket: socket, within: within}).run(ctx) }()
		if within == time.Hour {
			<-asked
			interrupt()
		}
		err := testcheck.Await(t, ended, "the end of a stepdown")
		assert.ErrorContains(t, err, "some programs have not released their locks yet")
		assert.Equal(t, within != time.Hour, strings.Contains(err.Error(), "--within"), "the limit is named if it was reached: %v", err)
	}
}

// A stepdown succeeds only if the agent says that all programs have released their locks, and drains only an agent that it was asked
// to drain. Everything else fails with what the agent, or the operator, has to know.
func TestAStepDownSaysWhatTheAgentAnswers(t *testing.T) {
	said := commandtest.Captured(t)
	socket := filepath.Join(t.TempDir(), "s")
	on, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var status int
	var body string
	asked := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.String()
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})}
	go func() { _ = server.Serve(on) }()
	defer server.Close()
	for _, c := range []struct {
		drain   bool
		status  int
		body    string
		request string
		fails   string
	}{
		{false, http.StatusOK, `{"held":0}`, "POST /v1/stepdown", ""},
		{true, http.StatusOK, `{"held":0}`, "POST /v1/stepdown?drain", ""},
		{true, http.StatusForbidden, `{"detail":"only root may"}`, "POST /v1/stepdown?drain", "the agent at " + socket + ": only root may"},
		{false, http.StatusTooManyRequests, `{"detail":"too many"}`, "POST /v1/stepdown", "the agent at " + socket + ": too many"},
		{false, http.StatusOK, `hello`, "POST /v1/stepdown", "no valid answer from the agent at " + socket},
	} {
		status, body = c.status, c.body
		said.Reset()
		err := (&steppingDown{socket: socket, drain: c.drain, within: time.Minute}).run(t.Context())
		assert.Equal(t, c.request, <-asked)
		if c.fails == "" {
			assert.NoError(t, err)
			assert.Equal(t, "spindle: all programs have released their locks\n", said.String())
		} else {
			assert.ErrorContains(t, err, c.fails)
			assert.Empty(t, said.String())
		}
	}
	assert.ErrorContains(t, (&steppingDown{socket: socket + "x", within: time.Minute}).run(t.Context()), "check that it is running")
	for _, within := range []time.Duration{0, -time.Second} {
		var exit *terminal.Exit
		require.ErrorAs(t, (&steppingDown{socket: socket, within: within}).run(t.Context()), &exit)
		assert.Equal(t, terminal.Misused, exit.Code)
	}
}
