package lock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// beats is a connection to the table that says when a heartbeat has been sent.
type beats struct {
	table.Store
	sent chan<- struct{}
}

func (b beats) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step == "heartbeat" {
		b.sent <- struct{}{}
	}
	return b.Store.Commit(ctx, step, writes)
}

// Whoever can reach the port of a holder can make it read and drop messages, but not make its heartbeats starve: not by 100,000
// messages a second, of a process that has a tenth of a core.
func TestAFloodOfMessagesDoesNotEndATerm(t *testing.T) {
	if os.Getenv("FLOODED") != "" {
		holdsFor(t, 4)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "FLOODED=1")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also of a child that is stopped
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	victim, err := net.Dial("udp", strings.TrimPrefix(lines.Text(), "at "))
	require.NoError(t, err)
	defer victim.Close()
	var over atomic.Bool
	sent := make(chan float64)
	go func() {
		n, began, flooding := 0, time.Now(), make([]byte, notify.Size)
		for ; !over.Load(); time.Sleep(time.Millisecond) {
			for ; float64(n) < time.Since(began).Seconds()*100_000 && !over.Load(); n++ {
				flooding[0], flooding[1] = 1, byte(1+n%8) // some kinds are unknown
				_, _ = victim.Write(flooding)
			}
		}
		sent <- float64(n) / time.Since(began).Seconds()
	}()
	go func() {
		for !over.Load() { // a quota for containers works like that
			_ = child.Process.Signal(syscall.SIGSTOP)
			time.Sleep(90 * time.Millisecond)
			_ = child.Process.Signal(syscall.SIGCONT)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
	}
	over.Store(true)
	t.Logf("%.0f messages a second", <-sent)
	assert.NoError(t, child.Wait(), said.String())
}

// holdsFor holds a lock for some heartbeats.
func holdsFor(t *testing.T, heartbeats int) {
	n, err := notify.Listen("127.0.0.1:0", "")
	require.NoError(t, err)
	defer n.Close()
	addr, _, _ := strings.Cut(n.Contact("", "row"), " ")
	sent := make(chan struct{}, 100)
	m := New(nil, "locktable", "m", silent, spindleLease(2*time.Second), options.Option(func(c *options.Config) {
		c.Store, c.Process, c.Notifier = beats{memstore.NewLocking(&memstore.Store{}), sent}, t.Name(), n
	}))
	require.NoError(t, m.Lock(t.Context()))
	token := m.now.Load().token()
	fmt.Println("at " + addr)
	for range heartbeats {
		<-sent
	}
	assert.Equal(t, token, m.now.Load().token())
	require.NoError(t, m.Unlock(t.Context()))
}
