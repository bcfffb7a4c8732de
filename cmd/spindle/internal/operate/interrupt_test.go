//go:build unix

package operate

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// before puts a proxy before the emulator of onEmulator, and calls the function with the path of each request that arrives there.
func before(t *testing.T, do func(r *http.Request)) {
	t.Helper()
	addr, stop, err := network.NewProxy(os.Getenv("SPANNER_EMULATOR_HOST"), 0, do)
	require.NoError(t, err)
	t.Cleanup(stop)
	t.Setenv("SPANNER_EMULATOR_HOST", addr)
}

// interrupt sends this process what Ctrl-C sends, and returns once it has arrived.
func interrupt(t *testing.T) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, os.Interrupt)
	defer signal.Stop(arrived)
	assert.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-arrived
}

// Ctrl-C ends doctor in the middle of its checks. What is known by then is printed, once and as it was asked for, and the exit code says that
// not all of it could be checked: no script may take that for a verdict, or find the locks that it expects unmentioned.
func TestAnInterruptedDoctorPrintsWhatItKnows(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		path, _ := onEmulator(t)
		var commits atomic.Int64
		before(t, func(r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/Commit") && commits.Add(1) == 5 {
				interrupt(t)
			}
		})
		out, _, err := runs(t, NewDoctor, path, "--expect", "never", "-o", format)
		endsWith(t, err, "1: interrupt", format)
		assert.NotContains(t, out, "never")
		assert.Regexp(t, map[string]string{"table": "(?s)^Table .*, [0-9]+ not checked\n$", "json": `^{"database":.*"verdict":"not checked".*}\n$`}[format], out)
		assert.Equal(t, 1, strings.Count(out, "round trips"))
	}
}

// The locks that are expected are looked at even if another check has failed. An interrupt while that goes on has the exit code of an
// interrupt, although the report shows a failed check.
func TestExpectedLocksAreLookedAtAfterAFailedCheck(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		for _, interrupted := range []bool{false, true} {
			e := &empty{}
			e.read = func(ctx context.Context, r *sppb.ReadRequest) {
				if interrupted && strings.Contains(r.GetKeySet().String(), `"never"`) {
					interrupt(t)
					<-ctx.Done()
				}
			}
			e.serve(t)
			out, _, err := runs(t, NewDoctor, somewhere, "--expect", "never,never", "-o", format)
			endsWith(t, err, map[bool]string{false: "3: exit code 3", true: "1: interrupt"}[interrupted], format)
			for _, check := range []map[string]string{
				{"table": "failed       table ", "json": `"name":"table","verdict":"failed"`},
				{"table": "not checked  expected ", "json": `"name":"expected","verdict":"not checked"`},
			} {
				assert.Equal(t, 1, strings.Count(out, check[format]), out)
			}
		}
	}
}

// The first Ctrl-C ends prune in the middle of a request, and the message says so rather than blaming the database.
func TestAnInterruptEndsPruneInARequest(t *testing.T) {
	path, tab := onEmulator(t)
	require.NoError(t, tab.Release(t.Context(), steps.Hold(t, tab, "done", time.Hour), "done"))
	for _, during := range []string{"/StreamingRead", "/Commit"} {
		t.Run(during, func(t *testing.T) {
			before(t, func(r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, during) {
					return
				}
				interrupt(t)
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
			})
			out, said, err := runs(t, NewPrune, path, "--older", "0s")
			endsWith(t, err, "1: stopped after 0 locks: interrupt")
			assert.Empty(t, out+said)
		})
	}
}
