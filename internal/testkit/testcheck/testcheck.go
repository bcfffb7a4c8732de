// Package testcheck contains checks that the tests of several packages and modules share.
package testcheck

import (
	"context"
	"log"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if they leave goroutines behind. It ignores two kinds of goroutines that
// the Spanner client never stops: an OpenCensus worker, and the goroutines of its connection to the metadata server.
// Once in each process, the client asks that server whether the process is running on Google Cloud.
func Main(m *testing.M, ignored ...goleak.Option) {
	code := m.Run()
	if err := leak(ignored...); err != nil && code == 0 {
		log.Print("goroutines are left: ", err)
		code = 1
	}
	os.Exit(code)
}

// NoLeak fails the test if any goroutines are left, except those that the given option ignores.
func NoLeak(t *testing.T, before goleak.Option) {
	t.Helper()
	require.NoError(t, leak(before))
}

// leak gives goroutines ten seconds to end. goleak.Find itself gives them about half a second, which is too short on a
// busy machine.
func leak(ignored ...goleak.Option) (err error) {
	for end := time.Now().Add(10 * time.Second); ; {
		if err = goleak.Find(append(clients(), ignored...)...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func clients() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	}
}

// soon is how long a test waits for an event that must come, even on a heavily loaded machine.
const soon = 30 * time.Second

// Await waits for a value from c, and returns it.
func Await[T any](tb testing.TB, c <-chan T, what string) (v T) {
	tb.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		require.Fail(tb, "not seen", what)
	}
	return v
}

// None fails the test if a value has come from c.
func None[T any](tb testing.TB, c <-chan T, what string) {
	tb.Helper()
	select {
	case v := <-c:
		require.Fail(tb, what, "%v", v)
	default:
	}
}

// Example is a testing.TB for example functions, which have none. Its End runs the cleanups.
type Example struct {
	testing.TB
	cleanups []func()
}

func (*Example) Helper()                  {}
func (*Example) Context() context.Context { return context.Background() }
func (*Example) Fatal(args ...any)        { log.Fatal(args...) }
func (*Example) Error(args ...any)        { log.Print(args...) }

// Cleanup implements testing.TB.
func (e *Example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

// End runs the cleanups. Call it with defer.
func (e *Example) End() {
	for i := range e.cleanups {
		e.cleanups[len(e.cleanups)-1-i]()
	}
}
