package group

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const lease = 10 * time.Second

// cluster is a table in memory, and the processes of one group that use it in virtual time.
type cluster struct {
	t     *testing.T
	store *memstore.Store
	all   []*process   // the processes that ran
	rows  atomic.Int64 // the number of rows that they have read

	mu     sync.Mutex
	works  map[string]*process // the process that works on each partition
	begun  map[string]int      // how often work on each partition has begun
	clash  []string
	tokens map[string]spindle.Token
	latest map[string]*process // the process to which each of these tokens belongs
}

// seeds returns the numbers from 0 to n-1.
func seeds(n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}

func inVirtualTime(t *testing.T, f func(*cluster)) {
	fleet.Bubble(t, func(t *testing.T) {
		c := &cluster{t: t, store: &memstore.Store{}, works: map[string]*process{}, begun: map[string]int{}, tokens: map[string]spindle.Token{}, latest: map[string]*process{}}
		defer func() { // also if the test has failed
			for _, p := range c.all {
				p.stop()
				p.link.Mend()
			}
		}()
		f(c)
		synctest.Wait()
		require.Empty(t, c.clash, "two processes worked on one partition")
	})
}

// counted is a table that counts the rows that are read.
type counted struct {
	table.Store
	rows *atomic.Int64
}

// Read implements table.Store.
func (s counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	rows, at, err := s.Store.Read(ctx, step, bound, keys)
	s.rows.Add(int64(len(rows)))
	return rows, at, err
}

// process is a member, with its link to the table and its clock.
type process struct {
	*Group
	id     string
	of     *cluster
	link   *memstore.Link
	clock  *fleet.Clock
	log    *fleet.Log
	stop   context.CancelFunc
	done   chan error
	dead   bool
	linger func(partition string) // called before work returns
}

func (c *cluster) process(id string, partitions Partitions, opts ...Option) *process {
	p := &process{id: id, of: c, link: &memstore.Link{Store: counted{c.store, &c.rows}}, clock: &fleet.Clock{}, log: &fleet.Log{}, done: make(chan error, 1)}
	seam := options.Option(func(o *options.Config) { o.Store, o.Clock = p.link, p.clock })
	p.Group = New(nil, "locktable", "orders", partitions, append([]Option{seam, spindle.WithID(id), WithWork(p.work), WithInitialDelay(0),
		spindle.WithLogger(slog.New(slog.NewTextHandler(p.log, nil)))}, opts...)...)
	return p
}

// lock returns a plain lock in the same table.
func (c *cluster) lock(name, id string) (*spindle.Lock, *memstore.Link) {
	link := &memstore.Link{Store: c.store}
	return spindle.New(nil, "locktable", name, c.seamOf(link), spindle.WithID(id), spindle.WithLogger(slog.New(slog.DiscardHandler))), link
}

// seam is an option for other locks in the same table.
func (c *cluster) seam(process string) spindle.CommonOption {
	link := c.seamOf(&memstore.Link{Store: c.store})
	return spindle.Options(link, options.Option(func(o *options.Config) { o.Process = process }))
}

func (c *cluster) seamOf(link *memstore.Link) spindle.CommonOption {
	return options.Option(func(o *options.Config) { o.Store, o.Clock = link, &fleet.Clock{} })
}

// sleep lets time pass.
func (c *cluster) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) start(id string, partitions Partitions, opts ...Option) *process {
	p := c.process(id, partitions, opts...)
	c.run(p)
	return p
}

func (c *cluster) run(p *process) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	c.all = append(c.all, p)
	require.NoError(c.t, p.Run(ctx, p.done))
}

// work records which process works on which partition. A process that was killed works on none.
func (p *process) work(ctx context.Context, partition Partition) error {
	c, name := p.of, partition.Name()
	c.mu.Lock()
	if other := c.works[name]; other != nil && !other.dead {
		c.clash = append(c.clash, fmt.Sprintf("%s of %s and %s", name, other.id, p.id))
	}
	if token := partition.Token(); token < c.tokens[name] || token == c.tokens[name] && c.latest[name] != p {
		c.clash = append(c.clash, fmt.Sprintf("the token of %s did not grow", name))
	}
	c.tokens[name], c.latest[name] = partition.Token(), p
	c.works[name] = p
	c.begun[name]++
	c.mu.Unlock()
	<-ctx.Done()
	if p.linger != nil {
		p.linger(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.works[name] == p {
		delete(c.works, name)
	}
	return nil
}

// kill makes the process silent forever, so that none of its requests reaches the table.
func (p *process) kill() {
	p.of.mu.Lock()
	p.dead = true
	p.of.mu.Unlock()
	p.link.Cut()
	p.stop()
}

// end stops the processes and waits for them.
func (c *cluster) end(ps ...*process) {
	for _, p := range ps {
		p.stop()
	}
	for _, p := range ps {
		<-p.done
	}
	synctest.Wait()
}

// until lets time pass until cond holds, and returns how much time passed.
func (c *cluster) until(limit time.Duration, what string, cond func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for synctest.Wait(); !cond(); synctest.Wait() {
		require.Less(c.t, time.Since(start), limit, "waited in vain for %s", what)
		time.Sleep(lease / 1000)
	}
	return time.Since(start)
}

// has returns the number of partitions that the process has.
func (p *process) has() int { return len(p.Held()) }

// spreadOver returns a function that reports whether the processes share all n partitions evenly.
func spreadOver(n int, ps ...*process) func() bool {
	return func() bool {
		sum := 0
		for _, p := range ps {
			has := p.has()
			if has < n/len(ps) || has > (n+len(ps)-1)/len(ps) {
				return false
			}
			sum += has
		}
		return sum == n
	}
}

func names(ps []Partition) []string {
	var names []string
	for _, p := range ps {
		names = append(names, p.Name())
	}
	return names
}

// partitionRows returns the table's rows without the members' rows.
func (c *cluster) partitionRows() map[string]table.Row {
	rows := c.store.Rows()
	for name := range rows {
		if !strings.Contains(name, "/partition/") {
			delete(rows, name)
		}
	}
	return rows
}
