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

// A Process stands for one process of a service, with its own way to the lock table, which the test can cut. A test of
// several processes in one program makes a Process for each, with a [Database] or a [Fake], and gives its three parts
// to the code under test. All methods may be called from any goroutine.
type Process struct {
	// Client is the process's connection to the database, and nil on a Fake. It is closed after the test.
	Client *spanner.Client

	// Table is the name of the lock table.
	Table string

	seam      spindle.Option
	cut, mend func()
}

// Option is for every lock, mutex, semaphore and group of this process, beside its other options. It makes locks of two
// processes compete as real processes do, sets the id, and connects locks on a Fake to it.
func (p *Process) Option() spindle.Option { return p.seam }

// Cut cuts the process off from the table until Mend. Its calls fail, or wait for the end of their ctx. It loses what
// it holds within a lease, by its own clock: spindle.ErrExpired. Others can claim it once the lease is over.
func (p *Process) Cut() { p.cut() }

// Mend ends a Cut.
func (p *Process) Mend() { p.mend() }

// processes numbers all processes: mutexes of one number queue for one another.
var processes atomic.Int64

func seam(id string, more func(*options.Config)) spindle.Option {
	number := fmt.Sprint("process ", processes.Add(1), " of the tests")
	return func(c *options.Config) {
		c.ID, c.Process = cmp.Or(c.ID, id), number
		more(c)
	}
}

// Process returns a separate process on the database, with the id unless the lock's options have another. Its client
// has the options of spindle.ClientOptions for a lease of a second, and is closed after the test: everything that uses
// it must have ended by then.
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
