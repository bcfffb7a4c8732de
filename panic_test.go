//go:build unix

package spindle_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

// slow is the value of a panic that takes a while to print. In the meantime, the other goroutines go on.
type slow struct{ released <-chan struct{} }

// Error is called by the runtime once the deferred functions of the panicking goroutine have run.
func (s slow) Error() string {
	select {
	case <-s.released:
		fmt.Println("released")
	case <-time.After(time.Second):
		fmt.Println("held")
	}
	os.Exit(0)
	return ""
}

// leadAndPanic is the code of a process whose leader function panics.
func leadAndPanic() error {
	link, released := &memstore.Link{Store: &memstore.Store{}}, make(chan struct{})
	link.After(func(step string) {
		if step == "release" {
			close(released)
		}
	})
	l := spindle.New(nil, "locktable", "mylock", options.Option(func(c *options.Config) { c.Store = link }),
		spindle.WithLeader(func(context.Context, spindle.Term) { panic(slow{released}) }))
	return l.RunAndWait(context.Background())
}

// While a process dies of a panic, other goroutines of its work may still run. So the panic is not taken for a return,
// and the lock is not released before its lease expires.
func TestALeaderFunctionThatPanicsReleasesNothing(t *testing.T) {
	lines := make(chan string, 1)
	child, err := subprocess.Command{Args: []string{"panic"}, Line: func(line string) { lines <- line }}.Start()
	require.NoError(t, err)
	defer child.Kill()
	assert.Equal(t, "held", <-lines)
}
