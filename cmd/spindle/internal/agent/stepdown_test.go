package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	}
}
