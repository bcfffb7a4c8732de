package spindletest

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// A Process represents one process of a service. It has its own connection to the lock table, and the test can cut this
// connection. To test several processes in one program, create a Process for each of them, on a [Database] or a [Fake],
// and pass its Client, Table and Option to the code under test. All methods may be called from any goroutine.
type Process struct {
	// Client is the process's connection to the database, or nil on a Fake. It is closed after the test.
	Client *spanner.Client

	// Table is the name of the lock table.
	Table string

	seam      spindle.CommonOption
	cut, mend func()
}

// Option returns an option that every lock, mutex, set, semaphore and group of this process needs, in addition to its
// other options. With this option, locks of different Processes compete as they would in different operating system
// processes. The option also sets the id and, on a Fake, connects the lock to the Fake.
func (p *Process) Option() spindle.CommonOption { return p.seam }

// Cut cuts the process off from the table until Mend is called. In the meantime, the process's calls fail, or wait
// until their ctx ends or Mend is called. Unless Mend is called in time, all locks of the process expire within one
// lease, measured by its own clock, and the reason is spindle.ErrExpired. Once a lock has expired, other processes can
// claim it.
func (p *Process) Cut() { p.cut() }

// Mend reconnects the process after Cut.
func (p *Process) Mend() { p.mend() }

// processes numbers all processes. Goroutines whose locks have the same number queue together, as in one real process.
var processes atomic.Int64

func seam(id string, more func(*options.Config)) spindle.CommonOption {
	number := fmt.Sprint("process ", processes.Add(1), " of the tests")
	return options.Option(func(c *options.Config) {
		c.ID, c.Process = cmp.Or(c.ID, id), number
		more(c)
	})
}

// Process returns a new process on the database. Its locks have the given id, unless their own options set a different
// one. Its Client is created with spindle.ClientOptions for a lease of one second. The Client is closed after the test,
// so everything that uses it must have ended by then.
func (d *Database) Process(id string) *Process {
	d.tb.Helper()
	link, err := network.NewLink(d.Host)
	if err != nil {
		d.tb.Fatal(err)
	}
	d.tb.Cleanup(link.Close)
	opts := append(d.ClientOptions(), option.WithEndpoint("passthrough:///"+link.Addr()), option.WithGRPCConnectionPool(1))
	opts = append(opts, spindle.ClientOptions(time.Second)...)
	client, err := spanner.NewClientWithConfig(context.Background(), d.Path, spanner.ClientConfig{DisableNativeMetrics: true}, opts...)
	if err != nil {
		d.tb.Fatal(err)
	}
	d.tb.Cleanup(client.Close)
	return &Process{Client: client, Table: d.Table, seam: seam(id, func(*options.Config) {}), cut: link.Cut, mend: link.Mend}
}
